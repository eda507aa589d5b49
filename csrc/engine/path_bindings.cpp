// Python names of the paths of a tree, for ops/cpu/paths.py alone; arrays come as addresses.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "engine/paths.h"

namespace nb = nanobind;

namespace blackout {
namespace {

using Address = uintptr_t;
using Release = nb::call_guard<nb::gil_scoped_release>;

template <class T> T *at(Address address) { return reinterpret_cast<T *>(address); }

TreeArrays tree(i64 words, Address up, Address place, Address first) {
  return {words, at<int32_t>(up), at<int32_t>(place), at<int32_t>(first)};
}

std::tuple<i64, i64, i64> path_sizes(i64 words, Address up, Address place, Address first,
                                     Address target, i64 n, Address step_start, Address entry_start) {
  const PathSizes found = measure_paths(tree(words, up, place, first), at<i64>(target), n,
                                        at<i64>(step_start), at<i64>(entry_start));
  return {found.steps, found.entries, found.longest};
}

void paths(i64 size, Address hidden, Address table, bool half, Address bias, i64 words, Address up,
           Address place, Address first, Address target, i64 n, i64 longest, Address value,
           Address step_start, Address entry_start, Address step_node, Address step_word,
           Address step_entry, Address derivative, Address d_hidden, int threads) {
  run_paths({size, at<float>(hidden), {at<void>(table), half}, at<float>(bias),
             tree(words, up, place, first), at<i64>(target), longest, at<float>(value), nullptr,
             at<i64>(step_start), at<i64>(entry_start), at<i64>(step_node), at<int32_t>(step_word),
             at<i64>(step_entry), at<float>(derivative), at<float>(d_hidden)},
            n, threads);
}

i64 node_rows(i64 words, Address up, Address place, Address first, Address nodes, i64 distinct,
              Address row_start, Address rows) {
  return rows_of_nodes(tree(words, up, place, first), at<i64>(nodes), distinct, at<i64>(row_start),
                       at<i64>(rows));
}

void path_rows(i64 size, Address hidden, Address factor, Address start, Address order,
               Address row_start, Address step_word, Address step_entry, Address derivative,
               Address row_values, Address bias_values, i64 distinct, int threads) {
  run_path_rows({size, at<float>(hidden), at<float>(factor), at<i64>(start), at<int32_t>(order),
                 at<i64>(row_start), at<int32_t>(step_word), at<i64>(step_entry),
                 at<float>(derivative), at<float>(row_values), at<float>(bias_values)},
                distinct, threads);
}

}  // namespace
}  // namespace blackout

void bind_paths(nb::module_ &m) {
  using namespace blackout;
  m.def("path_sizes", &path_sizes);
  m.def("paths", &paths, Release());
  m.def("node_rows", &node_rows);
  m.def("path_rows", &path_rows, Release());
}
