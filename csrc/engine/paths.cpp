#include "engine/paths.h"

#include <algorithm>
#include <vector>

#include "engine/parallel.h"

namespace blackout {

PathSizes measure_paths(const TreeArrays &tree, const i64 *target, i64 n, i64 *step_start,
                        i64 *entry_start) {
  PathSizes sizes{0, 0, 0};
  for (i64 word = 0; word < n; ++word) {
    if (step_start) step_start[word] = sizes.steps;
    if (entry_start) entry_start[word] = sizes.entries;
    const i64 before = sizes.entries;
    for (i64 at = target[word]; tree.up[at] >= 0; at = tree.words + tree.up[at]) {
      const i64 node = tree.up[at];
      sizes.entries += tree.first[node + 1] - tree.first[node];
      ++sizes.steps;
    }
    sizes.longest = std::max(sizes.longest, sizes.entries - before);
  }
  if (step_start) step_start[n] = sizes.steps;
  if (entry_start) entry_start[n] = sizes.entries;
  return sizes;
}

void run_paths(const PathArgs &args, i64 n, int threads) {
  const i64 grain = 16384 / std::max<i64>(args.size, 1) + 1;
  parallel_ranges(n, grain, threads, [&](i64 begin, i64 end) {
    std::vector<float> numbers(static_cast<size_t>(2 * args.longest));
    std::vector<int32_t> rows(static_cast<size_t>(args.longest));
    kernels().paths(args, begin, end, numbers.data(), rows.data());
  });
}

i64 rows_of_nodes(const TreeArrays &tree, const i64 *nodes, i64 distinct, i64 *row_start, i64 *rows) {
  i64 found = 0;
  for (i64 i = 0; i < distinct; ++i) {
    if (row_start) row_start[i] = found;
    for (i64 row = tree.first[nodes[i]]; row < tree.first[nodes[i] + 1]; ++row, ++found)
      if (rows) rows[found] = row;
  }
  if (row_start) row_start[distinct] = found;
  return found;
}

// The vectors are divided so that each part has as many (vector, choice) pairs as the others.
void run_path_rows(const PathRowArgs &args, i64 distinct, int threads) {
  i64 work = 0;
  for (i64 i = 0; i < distinct; ++i)
    work += (args.row_start[i + 1] - args.row_start[i]) * (args.start[i + 1] - args.start[i]);
  const int parts = work * args.size < 65536 ? 1 : threads;
  std::vector<i64> border(static_cast<size_t>(parts) + 1, args.row_start[distinct]);
  border[0] = 0;
  i64 done = 0;
  int part = 1;
  for (i64 i = 0; i < distinct && part < parts; ++i) {
    const i64 each = args.start[i + 1] - args.start[i];
    for (i64 row = args.row_start[i]; row < args.row_start[i + 1] && part < parts; ++row, done += each)
      if (done >= work * part / parts) border[static_cast<size_t>(part++)] = row;
  }
  auto some = [&](int number) {
    const auto at = static_cast<size_t>(number);
    if (border[at] < border[at + 1]) kernels().path_rows(args, border[at], border[at + 1]);
  };
  parallel(parts, threads, some);
}

}  // namespace blackout
