// Python names of the whole step, for ops/cpu/step.py alone: arrays come as addresses, whose type,
// layout and size it has checked, and which stay where they are as long as the step lives.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "step/train_step.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace blackout {
namespace {

using Address = uintptr_t;

template <class T> T *at(Address address) { return reinterpret_cast<T *>(address); }

std::unique_ptr<Parameter> optional(nb::handle parameter) {
  if (parameter.is_none()) return nullptr;
  return std::make_unique<Parameter>(nb::cast<const Parameter &>(parameter));
}

void bind_parameter(nb::module_ &m) {
  nb::class_<Parameter>(m, "StepParameter")
      .def(
          "__init__",
          [](Parameter *self, Address weight, bool half, i64 rows, i64 size, Address moment,
             bool row_moment, Address touched, Address step, Address update_rate, int decay,
             double beta, double damping, double weight_decay, bool correct_bias, u64 seed,
             u64 number) {
            new (self) Parameter{{at<void>(weight), half}, rows, size, at<float>(moment), row_moment,
                                 at<int32_t>(touched), at<i64>(step), at<double>(update_rate), decay,
                                 beta, damping, weight_decay, correct_bias, seed, number};
          },
          nb::kw_only(), "weight"_a, "half"_a, "rows"_a, "size"_a, "moment"_a, "row_moment"_a,
          "touched"_a, "step"_a, "update_rate"_a, "decay"_a, "beta"_a, "damping"_a, "weight_decay"_a,
          "correct_bias"_a, "seed"_a, "number"_a);
}

void bind_settings(nb::module_ &m) {
  nb::class_<NetworkSettings>(m, "StepNetwork")
      .def(
          "__init__",
          [](NetworkSettings *self, i64 steps, i64 streams, i64 size, i64 vocab, int cell, int layers,
             bool forget, bool half, double clip, double dropout, u64 kept) {
            new (self) NetworkSettings{steps,  streams, size, vocab,   cell, layers,
                                       forget, half,    clip, dropout, kept};
          },
          nb::kw_only(), "steps"_a, "streams"_a, "size"_a, "vocab"_a, "cell"_a, "layers"_a,
          "forget"_a, "half"_a, "clip"_a, "dropout"_a, "kept"_a);
  nb::class_<OutputSettings>(m, "StepOutput")
      .def(
          "__init__",
          [](OutputSettings *self, int objective, bool keep_copies, bool merge, bool target_one,
             i64 groups, i64 group_words, i64 samples, i64 size, i64 vocab, std::vector<i64> always,
             u64 seed) {
            new (self) OutputSettings{objective, keep_copies, merge,  target_one, groups, group_words,
                                      samples,   size,        vocab,  always,     seed};
          },
          nb::kw_only(), "objective"_a, "keep_copies"_a, "merge"_a, "target_one"_a, "groups"_a,
          "group_words"_a, "samples"_a, "size"_a, "vocab"_a, "always"_a, "seed"_a);
  nb::class_<OutputTables>(m, "StepTables")
      .def(
          "__init__",
          [](OutputTables *self, Address weight, bool half, Address bias, Address log_z,
             double constant_log_z, Address threshold, Address alias, Address log_q, i64 words,
             Address up, Address place, Address first) {
            new (self) OutputTables{{at<void>(weight), half}, at<float>(bias),  at<float>(log_z),
                                    constant_log_z,           at<double>(threshold), at<i64>(alias),
                                    at<double>(log_q),
                                    {words, at<int32_t>(up), at<int32_t>(place), at<int32_t>(first)}};
          },
          nb::kw_only(), "weight"_a, "half"_a, "bias"_a, "log_z"_a, "constant_log_z"_a,
          "threshold"_a, "alias"_a, "log_q"_a, "words"_a, "up"_a, "place"_a, "first"_a);
}

// Layers come as (input, recurrent, input bias, recurrent bias), None where there is none.
NetworkParameters parameters(const Parameter &embedding, nb::list layers, const Parameter &output,
                             nb::handle bias, nb::handle log_z) {
  NetworkParameters found{embedding, {}, output, optional(bias), optional(log_z)};
  for (nb::handle layer : layers) {
    NetworkParameters::Layer one;
    one.input = optional(layer[0]);
    one.recurrent = optional(layer[1]);
    one.input_bias = optional(layer[2]);
    one.recurrent_bias = optional(layer[3]);
    found.layers.push_back(std::move(one));
  }
  return found;
}

}  // namespace
}  // namespace blackout

void bind_step(nb::module_ &m) {
  using namespace blackout;
  bind_parameter(m);
  bind_settings(m);
  nb::class_<TrainStep>(m, "TrainStep")
      .def(
          "__init__",
          [](TrainStep *self, const NetworkSettings &network, const OutputSettings &output,
             const OutputTables &tables, const Parameter &embedding, nb::list layers,
             const Parameter &table, nb::object bias, nb::object log_z) {
            new (self)
                TrainStep(network, output, tables, parameters(embedding, layers, table, bias, log_z));
          },
          "network"_a, "output"_a, "tables"_a, "embedding"_a, "layers"_a, "table"_a,
          "bias"_a.none(), "log_z"_a.none())
      .def(
          "train",
          [](TrainStep &self, Address inputs, Address targets, Address mask, Address state,
             const std::vector<u64> &noise, u64 step, const std::vector<double> &rates, int threads) {
            nb::gil_scoped_release release;
            self.train(at<i64>(inputs), at<i64>(targets), at<bool>(mask), at<float>(state),
                       noise, step, rates, threads);
          })
      .def("results", [](TrainStep &self) {
        nb::list results;
        for (const BlockResult &result : self.take_results())
          results.append(nb::make_tuple(result.loss, result.norm));
        return results;
      });
}
