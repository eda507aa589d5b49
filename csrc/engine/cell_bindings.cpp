// Python names of the pointwise parts of gated cells, for ops/cpu/gated.py: addresses, as in
// bindings.cpp.
#include <nanobind/nanobind.h>

#include "engine/kernels.h"
#include "engine/parallel.h"

namespace nb = nanobind;

namespace blackout {
namespace {

using Address = uintptr_t;
using Release = nb::call_guard<nb::gil_scoped_release>;

template <class T> T *at(Address address) { return reinterpret_cast<T *>(address); }

i64 grain(i64 size) { return 4096 / size + 1; }

void cell_forward(int cell, i64 streams, i64 size, Address gates, Address product, Address bias,
                  Address keep_next, Address before, Address before_next, Address inner,
                  Address output, Address operand, bool half, int threads) {
  CellArgs a{};
  a.cell = cell;
  a.size = size;
  a.gates = at<float>(gates);
  a.product = at<float>(product);
  a.recurrent_bias = at<float>(bias);
  a.keep_next = at<float>(keep_next);
  a.before = at<float>(before);
  a.before_next = at<float>(before_next);
  a.inner = at<float>(inner);
  a.output = at<float>(output);
  a.operand = {at<void>(operand), half};
  parallel_ranges(streams, grain(size), threads,
                  [&](i64 begin, i64 end) { kernels().cell_forward(a, begin, end); });
}

void cell_backward(int cell, i64 streams, i64 size, bool last, Address gates, Address before,
                   Address inner, Address d_output, Address keep_next, Address carry,
                   Address carry_cell, Address delta, Address products, bool half, int threads) {
  CellBackArgs a{};
  a.cell = cell;
  a.size = size;
  a.last = last;
  a.gates = at<float>(gates);
  a.before = at<float>(before);
  a.inner = at<float>(inner);
  a.d_output = at<float>(d_output);
  a.keep_next = at<float>(keep_next);
  a.carry = at<float>(carry);
  a.carry_cell = at<float>(carry_cell);
  a.delta = {at<void>(delta), half};
  a.products = at<void>(products);
  parallel_ranges(streams, grain(size), threads,
                  [&](i64 begin, i64 end) { kernels().cell_backward(a, begin, end); });
}

}  // namespace
}  // namespace blackout

void bind_cells(nb::module_ &m) {
  using namespace blackout;
  m.def("cell_forward", &cell_forward, Release());
  m.def("cell_backward", &cell_backward, Release());
}
