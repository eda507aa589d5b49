// A tree over words as the output layer of a block (engine/paths.h).
#pragma once

#include "step/memory.h"
#include "step/output.h"

namespace blackout {

class TreeOutput : public BlockOutput {
 public:
  TreeOutput(i64 words, i64 size)
      : words_(words),
        size_(size),
        target_(words),
        value_(words),
        step_start_(words + 1),
        entry_start_(words + 1) {}

  void draw(const OutputTables &, u64, const i64 *, int) override {}
  void run(const OutputTables &tables, const float *hidden, Numbers operands, const i64 *target,
           const float *factor, float *d_hidden, int threads) override;

  const float *values() const override { return value_; }
  i64 gradient_rows() const override { return found_; }
  const i64 *rows() const override { return rows_; }
  Numbers row_values() const override { return {row_values_.data(), false}; }
  const float *bias_values() const override { return bias_values_; }
  float d_log_z() const override { return 0; }

 private:
  void make_room(i64 steps, i64 entries);

  i64 words_, size_;
  i64 steps_ = 0, entries_ = 0, room_ = 0, found_ = 0;  // what there is room for; rows of the block
  Memory<i64> target_;
  Memory<float> value_;
  Memory<i64> step_start_, entry_start_;
  Memory<i64> step_node_, step_entry_, nodes_, start_, row_start_;
  Memory<int32_t> step_word_, order_;
  Memory<float> derivative_;
  Memory<i64> rows_;
  Memory<float> row_values_, bias_values_;
};

}  // namespace blackout
