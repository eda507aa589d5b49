// Python's view of the n-gram code.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "ngram/estimate.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace blackout::ngram;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Each call looks for Ctrl-C; the Python function itself is called a few times a second.
Progress python_progress(nb::object callback) {
  auto last = std::chrono::steady_clock::now() - std::chrono::hours(1);
  return [callback, last](const std::string &stage, uint64_t done, uint64_t total) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (done > 0 && now - last < std::chrono::milliseconds(100)) return;
    last = now;
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!callback.is_none()) callback(stage, done, total);
  };
}

Write python_write(nb::object callback) {
  return [callback](const char *data, size_t size) {
    nb::gil_scoped_acquire gil;
    callback(nb::bytes(data, size));
  };
}

nb::dict run_estimate(Estimator &self, nb::object write, nb::object progress) {
  Write write_bytes = python_write(write);
  Progress report = python_progress(progress);
  Estimate estimate;
  {
    nb::gil_scoped_release release;
    estimate = self.estimate(write_bytes, report);
  }
  nb::list discounts;
  for (const Discount &d : estimate.discounts)
    discounts.append(nb::make_tuple(d.amount[1], d.amount[2], d.amount[3]));
  nb::dict result;
  result["ngrams"] = nb::cast(estimate.ngrams);
  result["discounts"] = discounts;
  result["failed"] = nb::cast(estimate.failed);
  return result;
}

void bind_estimator(nb::module_ &m) {
  nb::class_<Estimator>(m, "NGramEstimator")
      .def(
          "__init__",
          [](Estimator *self, int order, size_t memory, size_t threads, std::string folder,
             std::vector<uint64_t> prune, std::optional<std::array<double, 3>> fallback,
             bool keep_empty, bool skip_markers, bool replace_invalid) {
            Settings s;
            s.order = order;
            s.memory = memory;
            s.threads = threads;
            s.folder = std::move(folder);
            s.prune = std::move(prune);
            s.fallback = fallback;
            s.text.keep_empty = keep_empty;
            s.text.skip_markers = skip_markers;
            s.text.replace_invalid = replace_invalid;
            new (self) Estimator(s);
          },
          nb::kw_only(), "order"_a, "memory"_a, "threads"_a, "folder"_a, "prune"_a,
          "fallback"_a.none(), "keep_empty"_a, "skip_markers"_a, "replace_invalid"_a)
      .def("announce", [](Estimator &self, nb::bytes word) {
        self.announce({static_cast<const char *>(word.data()), word.size()});
      })
      .def("feed",
           [](Estimator &self, Bytes data, bool last) {
             nb::gil_scoped_release release;
             return self.feed(data.data(), data.size(), last);
           })
      .def("estimate", &run_estimate, "write"_a, "progress"_a.none())
      .def_prop_ro("tokens", &Estimator::tokens)
      .def_prop_ro("sentences", &Estimator::sentences)
      .def_prop_ro("types", &Estimator::types);
}

}  // namespace

void bind_ngram(nb::module_ &m) { bind_estimator(m); }
