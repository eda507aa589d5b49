// Python names of the hashed features, for ops/cpu alone: addresses, as in bindings.cpp.
#include <nanobind/nanobind.h>

#include "engine/windows.h"

namespace nb = nanobind;

namespace blackout {
namespace {

using Address = uintptr_t;
using Release = nb::call_guard<nb::gil_scoped_release>;

template <class T> T *at(Address address) { return reinterpret_cast<T *>(address); }

WindowWords words(i64 groups, i64 group_words, i64 samples, i64 orders, Address start,
                  Address target, Address sample) {
  return {groups, group_words, samples, orders, at<i64>(start), at<i64>(target), at<i64>(sample)};
}

}  // namespace
}  // namespace blackout

void bind_windows(nb::module_ &m) {
  using namespace blackout;
  m.def(
      "window_values",
      [](i64 groups, i64 group_words, i64 samples, i64 orders, Address start, Address target,
         Address sample, Address numbers, i64 size, Address of_target, Address of_samples,
         int threads) {
        window_values(at<float>(numbers), size,
                      words(groups, group_words, samples, orders, start, target, sample),
                      at<float>(of_target), at<float>(of_samples), threads);
      },
      Release());
  m.def(
      "add_windows",
      [](Address numbers, i64 size, Address start, i64 orders, i64 n, i64 first, i64 columns,
         Address logits, int threads) {
        add_windows(at<float>(numbers), size, at<i64>(start), orders, n, first, columns,
                    at<float>(logits), threads);
      },
      Release());
  m.def(
      "add_window_gradient",
      [](Address d_logits, Address start, i64 orders, i64 n, i64 first, i64 columns,
         Address d_numbers, i64 size, int threads) {
        add_window_gradient(at<float>(d_logits), at<i64>(start), orders, n, first, columns,
                            at<float>(d_numbers), size, threads);
      },
      Release());
  nb::class_<WindowSums>(m, "WindowSums")
      .def(nb::init<i64>())
      .def(
          "add",
          [](WindowSums &self, Address numbers, i64 groups, i64 group_words, i64 samples,
             i64 orders, Address start, Address target, Address sample, Address d_target,
             Address d_samples, int threads) {
            return self.add(at<float>(numbers),
                            words(groups, group_words, samples, orders, start, target, sample),
                            at<float>(d_target), at<float>(d_samples), threads);
          },
          Release())
      .def(
          "take",
          [](WindowSums &self, Address places, Address values) {
            self.take(at<i64>(places), at<float>(values));
          },
          Release());
}
