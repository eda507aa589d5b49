// The sampled output layer over a block: sample sets drawn, objectives, and all their gradients.
//
// The G sample sets are independent of each other: a thread takes one from the gathered rows to the
// gradients of these rows, so that its logits stay in cache. Where there are fewer sets than
// threads, the words of a set are divided.
#pragma once

#include <vector>

#include "engine/product.h"
#include "step/memory.h"
#include "step/output.h"

namespace blackout {

struct OutputSettings {
  int objective;
  bool keep_copies, merge;
  bool target_one;  // the target weighs 1 instead of 1 / Q
  i64 groups, group_words, samples, size, vocab;
  std::vector<i64> always;  // words put into every set
  u64 seed;
};

class SampledOutput : public BlockOutput {
 public:
  SampledOutput(const OutputSettings &settings, bool half);

  // The sample sets of a step, and what is subtracted from all logits.
  void draw(const OutputTables &tables, u64 step, const i64 *target, int threads) override;
  void run(const OutputTables &tables, const float *hidden, Numbers operands, const i64 *target,
           const float *factor, float *d_hidden, int threads) override;

  const float *values() const override { return value_; }
  i64 gradient_rows() const override {
    return start_[static_cast<size_t>(settings_.groups)] + words_;
  }
  const i64 *rows() const override { return rows_; }
  Numbers row_values() const override { return row_values_; }
  const float *bias_values() const override { return bias_values_; }
  float d_log_z() const override;

 private:
  struct Set {  // one group, as it is worked on
    i64 group, columns, first_word;
    const i64 *sample;
    const float *offset, *multiplicity;
    i64 row;  // of its first sample's gradient
  };
  struct Desk {  // the memory of one thread's sets
    NumberMemory columns, rows, states;  // packed operands
    Memory<float> logits;
    NumberMemory derivatives;
    Memory<float> product;
    Memory<float> scratch;
  };
  void merge(int threads);
  Set set(i64 group) const;
  Panels panels(const NumberMemory &memory, i64 depth, i64 columns) const {
    return {memory, depth, columns};
  }
  void objective(const Set &set, const Desk &desk, i64 begin, i64 end, float *scratch) const;
  void hidden_gradient(const Set &set, const Desk &desk, i64 begin, i64 end) const;
  void row_gradient(const Set &set, const Desk &desk, i64 begin, i64 end) const;
  void pack_samples(const Set &set, const Desk &desk, bool as_columns, int threads) const;
  void pack_states(const Set &set, const Desk &desk, int threads) const;
  void run_alone(i64 group, const Desk &desk) const;
  void run_divided(i64 group, const Desk &desk, int threads) const;

  OutputSettings settings_;
  bool half_;
  i64 words_, most_;  // words of a block, columns of a group at most
  std::vector<i64> start_;  // (groups + 1): where the samples of each group begin in rows_
  Memory<i64> drawn_;            // (groups, most)
  Memory<i64> rows_;             // samples of all groups, then the targets
  Memory<float> multiplicity_;   // of the samples
  Memory<float> sample_offset_, target_offset_;
  Memory<float> value_, d_target_;  // (words,)
  NumberMemory scaled_;             // (words, h): hidden states times their factor
  NumberMemory row_values_;
  Memory<float> bias_values_;
  std::vector<Desk> desks_;
  // the block that is worked on
  OutputTables tables_{};
  const float *hidden_ = nullptr, *factor_ = nullptr;
  const i64 *target_ = nullptr;
  Numbers operands_{};
  float *d_hidden_ = nullptr;
};

}  // namespace blackout
