// Python names of the products, for ops/cpu, tests and benchmarks: addresses, as in bindings.cpp.
#include <nanobind/nanobind.h>

#include "engine/multiply.h"
#include "engine/parallel.h"

namespace nb = nanobind;

namespace blackout {
namespace {

using Address = uintptr_t;
using Release = nb::call_guard<nb::gil_scoped_release>;

template <class T> T *at(Address address) { return reinterpret_cast<T *>(address); }

// Packs a matrix with rows of `stride` numbers: its rows become rows of the operand, or columns.
void pack(Address from, bool from_half, i64 stride, Address rows, Address to, bool to_half,
          i64 depth, i64 columns, bool as_columns, int threads) {
  const PackArgs args{{at<void>(from), from_half},
                      stride,
                      at<i64>(rows),
                      {{at<void>(to), to_half}, depth, columns}};
  const i64 n = as_columns ? columns : depth, units = (n + kPackUnit - 1) / kPackUnit;
  parallel_ranges(units, 1, threads, [&](i64 begin, i64 end) {
    const i64 last = end * kPackUnit < n ? end * kPackUnit : n;
    (as_columns ? kernels().pack_columns : kernels().pack_rows)(args, begin * kPackUnit, last);
  });
}

void product(Address left, bool left_half, i64 row_step, i64 depth_step, Address right,
             bool right_half, i64 rows, i64 depth, i64 columns, Address out, bool out_half,
             i64 out_step, bool add, i64 repeat, int threads) {
  const ProductArgs args{{at<void>(left), left_half},
                         row_step,
                         depth_step,
                         {{at<void>(right), right_half}, depth, columns},
                         {at<void>(out), out_half},
                         out_step,
                         add};
  const i64 grain = product_grain(depth, columns);
  const int most = rows <= grain ? 1 : threads;
  for (i64 i = 0; i < repeat; ++i)
    parallel_ranges(rows, grain, most,
                    [&](i64 begin, i64 end) { kernels().product(args, begin, end); });
}

Operand operand(Address data, bool half, i64 batch_step, i64 row_step, i64 column_step) {
  return {{at<void>(data), half}, batch_step, row_step, column_step};
}

void multiply_batch(i64 batch, i64 rows, i64 depth, i64 columns, Address left, bool left_half,
                    i64 left_batch_step, i64 left_row_step, i64 left_column_step, Address right,
                    bool right_half, i64 right_batch_step, i64 right_row_step,
                    i64 right_column_step, Address out, bool out_half, i64 out_batch_step,
                    i64 out_row_step, int threads) {
  multiply({batch, rows, depth, columns,
            operand(left, left_half, left_batch_step, left_row_step, left_column_step),
            operand(right, right_half, right_batch_step, right_row_step, right_column_step),
            operand(out, out_half, out_batch_step, out_row_step, 1)},
           threads);
}

}  // namespace
}  // namespace blackout

void bind_products(nb::module_ &m) {
  using namespace blackout;
  m.def("panel_numbers", &panel_numbers);
  m.def("pack", &pack, Release());
  m.def("product", &product, Release());
  m.def("multiply", &multiply_batch, Release());
}
