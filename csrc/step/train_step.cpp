#include "step/train_step.h"

#include <cfloat>
#include <cmath>
#include <stdexcept>
#include <string>

#include "engine/parallel.h"
#include "step/tree_output.h"

namespace blackout {
namespace {

constexpr i64 kSentenceEnd = 0;

std::unique_ptr<BlockOutput> make_output(const NetworkSettings &network, const OutputSettings &output,
                                         const OutputTables &tables) {
  if (tables.tree.words)
    return std::make_unique<TreeOutput>(network.steps * network.streams, output.size);
  return std::make_unique<SampledOutput>(output, network.half);
}

i64 most_output_rows(const NetworkSettings &network, const OutputSettings &output,
                     const OutputTables &tables) {
  if (tables.tree.words) return tables.tree.words - 1;  // each once
  return output.groups * (output.samples + static_cast<i64>(output.always.size())) +
         network.steps * network.streams;
}

i64 state_size(const NetworkSettings &n) { return state_parts(n.cell) * n.streams * n.size; }

}  // namespace

TrainStep::TrainStep(const NetworkSettings &network, const OutputSettings &output,
                     const OutputTables &tables, NetworkParameters parameters)
    : network_(network),
      tables_(tables),
      parameters_(std::move(parameters)),
      output_(make_output(network, output, tables)),
      input_rows_(network.steps * network.streams),
      output_rows_(most_output_rows(network, output, tables)),
      keep_(network.steps * network.streams),
      factor_(network.steps * network.streams) {
  const i64 states = network.steps * network.streams * network.size;
  for (int i = 0; i < network.layers; ++i) {
    const bool has_input = parameters_.layers[static_cast<size_t>(i)].input != nullptr;
    layers_.emplace_back(network.cell, has_input, network.steps, network.streams, network.size,
                         network.half);
    d_output_.emplace_back(states);
    if (drops()) dropped_.emplace_back(states);
    if (drops() && network.half) dropped_half_.emplace_back(states, true);
  }
  const bool has_input = parameters_.layers[0].input != nullptr;
  if (has_input) embedded_ = NumberMemory(states, network.half);
  if (has_input || drops()) d_embedded_ = NumberMemory(states, network.half);
}

void TrainStep::require_words(const i64 *words, const char *name) const {
  for (i64 i = 0; i < network_.steps * network_.streams; ++i)
    if (words[i] < 0 || words[i] >= network_.vocab)
      throw std::out_of_range(std::string(name) + " " + std::to_string(words[i]) + " is not in 0 … " +
                              std::to_string(network_.vocab - 1));
}

// The loss of a block is the sum of -J over its words divided by B·T, whatever the words left in it.
void TrainStep::weigh(const bool *mask) {
  const i64 words = network_.steps * network_.streams;
  const float each = -1.0f / static_cast<float>(words);
  for (i64 i = 0; i < words; ++i) factor_[i] = !mask || mask[i] ? each : 0.0f;
}

// What the first layer takes of its input words, for some streams.
void TrainStep::look_up(const i64 *inputs, i64 begin, i64 end) {
  const NetworkSettings &n = network_;
  const bool has_input = parameters_.layers[0].input != nullptr;
  for (i64 t = 0; t < n.steps; ++t) {
    const i64 row = t * n.streams;
    const Numbers out = has_input ? embedded_.at(row * n.size)
                                  : Numbers{layers_[0].gates() + row * n.size, false};
    kernels().gather({parameters_.embedding.weight, inputs + row, n.size, out}, begin, end);
    for (i64 stream = row + begin; n.forget && stream < row + end; ++stream)
      keep_[stream] = inputs[stream] == kSentenceEnd ? 0.0f : 1.0f;
  }
  if (drops()) {
    const Numbers values = has_input ? Numbers(embedded_) : Numbers{layers_[0].gates(), false};
    drop(0, values, values, {}, begin, end);
  }
}

// Applies the dropout of a place, 0 for the inputs and i + 1 for the outputs of layer i, to some
// streams of (T, B, h) numbers.
void TrainStep::drop(int place, Numbers values, Numbers out, Numbers also, i64 begin,
                     i64 end) const {
  const NetworkSettings &n = network_;
  const i64 step = n.streams * n.size;
  const DropArgs args{values, noise_.at(static_cast<size_t>(place)), n.kept,
                      static_cast<float>(1 / (1 - n.dropout)), out, also};
  for (i64 t = 0; t < n.steps; ++t)
    kernels().drop(args, t * step + begin * n.size, t * step + end * n.size);
}

const float *TrainStep::values_of(int layer) const {
  const auto i = static_cast<size_t>(layer);
  return drops() ? dropped_[i].data() : layers_[i].output();
}

Numbers TrainStep::operands_of(int layer) const {
  const auto i = static_cast<size_t>(layer);
  if (!drops()) return layers_[i].hidden();
  return network_.half ? Numbers(dropped_half_[i]) : Numbers{dropped_[i].data(), false};
}

Numbers TrainStep::inputs_of(int layer) const {
  return layer ? operands_of(layer - 1) : Numbers(embedded_);
}

Numbers TrainStep::d_inputs() const {
  return parameters_.layers[0].input || drops() ? Numbers(d_embedded_) : layers_[0].delta();
}

void TrainStep::forward(float *state, i64 begin, i64 end) {
  const float *keep = network_.forget ? keep_.data() : nullptr;
  for (int i = 0; i < network_.layers; ++i) {
    RecurrentLayer &layer = layers_[static_cast<size_t>(i)];
    layer.forward(inputs_of(i), keep, state + i * state_size(network_), begin, end);
    if (drops()) {
      const Numbers values{const_cast<float *>(layer.output()), false};
      const Numbers also = network_.half ? operands_of(i) : Numbers{};
      drop(i + 1, values, {const_cast<float *>(values_of(i)), false}, also, begin, end);
    }
  }
}

void TrainStep::backward(i64 begin, i64 end) {
  const float *keep = network_.forget ? keep_.data() : nullptr;
  for (int i = network_.layers - 1; i >= 0; --i) {
    const Numbers below = i ? Numbers{d_output_[static_cast<size_t>(i) - 1].data(), false}
                            : Numbers(d_embedded_);
    const Memory<float> &d_output = d_output_[static_cast<size_t>(i)];
    if (drops()) drop(i + 1, {d_output, false}, {d_output, false}, {}, begin, end);
    layers_[static_cast<size_t>(i)].backward(d_output, keep, below, begin, end);
  }
  const bool has_input = parameters_.layers[0].input != nullptr;
  if (drops()) drop(0, has_input ? d_inputs() : layers_[0].delta(), d_inputs(), {}, begin, end);
}

// Streams that are worth a thread of their own: with fewer it has hardly woken up.
i64 TrainStep::streams_each() const {
  const NetworkSettings &n = network_;
  return (i64{1} << 20) / (n.layers * n.steps * gates_of(n.cell) * n.size * n.size) + 1;
}

void TrainStep::train(const i64 *inputs, const i64 *targets, const bool *mask, float *state,
                      const std::vector<u64> &noise, u64 sample_step,
                      const std::vector<double> &rates, int threads) {
  const NetworkSettings &n = network_;
  noise_ = noise;
  require_words(inputs, "input");
  require_words(targets, "target");
  weigh(mask);
  output_->draw(tables_, sample_step, targets, threads);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto &of = parameters_.layers[i];
    const auto weight = [](const std::unique_ptr<Parameter> &p) {
      return p ? static_cast<const float *>(p->weight.data) : nullptr;
    };
    layers_[i].pack({weight(of.input), weight(of.recurrent), weight(of.input_bias),
                     weight(of.recurrent_bias)},
                    threads);
  }
  const i64 grain = streams_each();
  parallel_ranges(n.streams, grain, threads, [&](i64 begin, i64 end) {
    look_up(inputs, begin, end);
    forward(state, begin, end);
  });
  const int top = n.layers - 1;
  output_->run(tables_, values_of(top), operands_of(top), targets, factor_, d_output_.back(), threads);
  parallel_ranges(n.streams, grain, threads, [&](i64 begin, i64 end) { backward(begin, end); });
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].weight_gradients(inputs_of(static_cast<int>(i)), threads);
  if (tables_.log_z) d_log_z_ = output_->d_log_z();

  auto collect = [&](int number) {
    if (number == 0)
      output_rows_.collect(output_->rows(), output_->gradient_rows());
    else
      input_rows_.collect(inputs, n.steps * n.streams);
  };
  parallel(2, threads, collect);
  BlockResult result{loss(mask), 0};
  double factor = 1;
  if (n.clip > 0) {
    result.norm = std::sqrt(squared_norm(threads));
    factor = std::fmin(1.0, n.clip / std::fmax(result.norm, DBL_MIN));
  }
  update(factor, rates, threads);
  results_.push_back(result);
}

double TrainStep::loss(const bool *mask) const {
  const i64 words = network_.steps * network_.streams;
  double total = 0;
  for (i64 i = 0; i < words; ++i)
    if (!mask || mask[i]) total += static_cast<double>(output_->values()[i]);
  return -total / static_cast<double>(words);
}

template <class F> void TrainStep::each_dense(F &&body) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto &of = parameters_.layers[i];
    const RecurrentLayer &layer = layers_[i];
    if (of.input) body(*of.input, layer.d_input_weight());
    body(*of.recurrent, layer.d_recurrent());
    if (of.input_bias) body(*of.input_bias, layer.d_input_bias());
    if (of.recurrent_bias) body(*of.recurrent_bias, layer.d_recurrent_bias());
  }
  if (parameters_.log_z) body(*parameters_.log_z, static_cast<const float *>(&d_log_z_));
}

double TrainStep::squared_norm(int threads) {
  const i64 h = network_.size;
  double total = input_rows_.squared_norm(d_inputs(), h, threads);
  each_dense([&](const Parameter &p, const float *gradient) {
    total += dense_squared_norm(gradient, p.rows * p.size, threads);
  });
  total += output_rows_.squared_norm(output_->row_values(), h, threads);
  if (parameters_.bias)
    total += output_rows_.squared_norm({const_cast<float *>(output_->bias_values()), false}, 1, threads);
  return total;
}

void TrainStep::update(double factor, const std::vector<double> &rates, int threads) {
  const auto lr = [&](const Parameter &p) { return rates.at(p.number); };
  const Parameter &embedding = parameters_.embedding, &table = parameters_.output;
  input_rows_.apply(embedding, d_inputs(), factor, lr(embedding), threads);
  each_dense([&](const Parameter &p, const float *gradient) {
    apply_dense(p, gradient, factor, lr(p), threads);
  });
  output_rows_.apply(table, output_->row_values(), factor, lr(table), threads);
  if (const Parameter *bias = parameters_.bias.get())
    output_rows_.apply(*bias, {const_cast<float *>(output_->bias_values()), false}, factor, lr(*bias),
                       threads);
}

std::vector<BlockResult> TrainStep::take_results() {
  std::vector<BlockResult> taken;
  taken.swap(results_);
  return taken;
}

}  // namespace blackout
