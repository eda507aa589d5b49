#include "step/tree_output.h"

#include <algorithm>

#include "engine/paths.h"
#include "engine/rows.h"

namespace blackout {

void TreeOutput::make_room(i64 steps, i64 entries) {
  if (steps > steps_) {
    steps_ = steps + steps / 4;
    step_node_ = Memory<i64>(steps_), step_entry_ = Memory<i64>(steps_);
    nodes_ = Memory<i64>(steps_), start_ = Memory<i64>(steps_ + 1);
    row_start_ = Memory<i64>(steps_ + 1);
    step_word_ = Memory<int32_t>(steps_), order_ = Memory<int32_t>(steps_);
  }
  if (entries > entries_) {
    entries_ = entries + entries / 4;
    derivative_ = Memory<float>(entries_);
  }
}

void TreeOutput::run(const OutputTables &tables, const float *hidden, Numbers, const i64 *target,
                     const float *factor, float *d_hidden, int threads) {
  // words that do not count go the way of one that does: no row is touched for their sake
  const i64 counted = std::find_if(factor, factor + words_, [](float f) { return f != 0; }) - factor;
  const i64 other = target[counted < words_ ? counted : 0];
  for (i64 i = 0; i < words_; ++i) target_[i] = factor[i] != 0 ? target[i] : other;
  const TreeArrays &tree = tables.tree;
  const PathSizes sizes = measure_paths(tree, target_, words_, step_start_, entry_start_);
  make_room(sizes.steps, sizes.entries);
  PathArgs paths{size_,         hidden,     tables.weight, tables.bias, tree,
                 target_,       sizes.longest, value_,     factor,      step_start_,
                 entry_start_,  step_node_, step_word_,    step_entry_, derivative_,
                 d_hidden};
  run_paths(paths, words_, threads);
  const i64 distinct = collect_rows(step_node_, sizes.steps, nodes_, start_, order_);
  found_ = rows_of_nodes(tree, nodes_, distinct, row_start_, nullptr);
  if (found_ > room_) {
    room_ = found_ + found_ / 4;
    rows_ = Memory<i64>(room_), bias_values_ = Memory<float>(room_);
    row_values_ = Memory<float>(room_ * size_);
  }
  rows_of_nodes(tree, nodes_, distinct, nullptr, rows_);
  run_path_rows({size_, hidden, factor, start_, order_, row_start_, step_word_, step_entry_,
                 derivative_, row_values_, bias_values_},
                distinct, threads);
}

}  // namespace blackout
