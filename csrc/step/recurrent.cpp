#include "step/recurrent.h"

#include <algorithm>
#include <cstring>

#include "engine/parallel.h"

namespace blackout {
namespace {

constexpr i64 kPackedNumbers = 32768;  // what a thread should have to pack at least

template <class F> void in_units(const PackArgs &args, i64 n, int threads, F &&pack) {
  const i64 units = (n + kPackUnit - 1) / kPackUnit;
  const i64 grain = kPackedNumbers / (kPackUnit * std::max<i64>(args.stride, 1)) + 1;
  parallel_ranges(units, grain, threads, [&](i64 begin, i64 end) {
    pack(args, begin * kPackUnit, std::min(end * kPackUnit, n));
  });
}

i64 itemsize(Numbers numbers) { return numbers.half ? 2 : 4; }

Numbers moved(Numbers numbers, i64 place) {
  return {static_cast<char *>(numbers.data) + place * itemsize(numbers), numbers.half};
}

}  // namespace

void pack_rows(const PackArgs &args, i64 n, int threads) {
  in_units(args, n, threads, kernels().pack_rows);
}

void pack_columns(const PackArgs &args, i64 n, int threads) {
  in_units(args, n, threads, kernels().pack_columns);
}

RecurrentLayer::RecurrentLayer(int cell, bool has_input, i64 steps, i64 streams, i64 size, bool half)
    : cell_(cell),
      has_input_(has_input),
      half_(half),
      steps_(steps),
      streams_(streams),
      size_(size),
      width_(gates_of(cell) * size),
      recurrent_(matrix()),
      gates_(steps * streams * width_),
      product_(streams * width_),
      output_(steps * streams * size),
      operands_(steps * streams * size, half),
      delta_(steps * streams * width_, half),
      carry_(streams * size),
      packed_(panel_numbers(steps * streams, size), half),
      d_recurrent_(width_ * size),
      d_input_bias_(width_),
      d_recurrent_bias_(width_) {
  const i64 states = steps * streams * size;
  if (half) hidden_ = NumberMemory(states, true);
  if (has_input) {
    input_ = matrix();
    d_input_weight_ = Memory<float>(width_ * size);
  }
  if (cell == kLstm || cell == kGru) {
    before_ = Memory<float>(states + streams * size);
    inner_ = Memory<float>(states);
  }
  if (cell == kLstm) carry_cell_ = Memory<float>(streams * size);
  if (cell == kGru) products_ = NumberMemory(steps * streams * width_, half);
}

RecurrentLayer::Matrix RecurrentLayer::matrix() const {
  Matrix made;
  made.forward = NumberMemory(panel_numbers(size_, width_), half_);
  made.backward = NumberMemory(panel_numbers(width_, size_), half_);
  made.forward_panels = {made.forward, size_, width_};
  made.backward_panels = {made.backward, width_, size_};
  return made;
}

void RecurrentLayer::pack_matrix(const float *weight, Matrix &to, int threads) const {
  const Numbers from{const_cast<float *>(weight), false};
  pack_columns({from, size_, nullptr, to.forward_panels}, width_, threads);
  pack_rows({from, size_, nullptr, to.backward_panels}, width_, threads);
}

void RecurrentLayer::pack(const LayerWeights &weights, int threads) {
  weights_ = weights;
  pack_matrix(weights.recurrent, recurrent_, threads);
  if (has_input_) pack_matrix(weights.input, input_, threads);
}

Numbers RecurrentLayer::row(const NumberMemory &array, i64 t) const {
  return array.at(t * streams_ * size_);
}

// What the first step uses of the state before the block.
void RecurrentLayer::begin_block(const float *keep, const float *state, i64 begin, i64 end) {
  const Numbers first = operands_;
  for (i64 stream = begin; stream < end; ++stream) {
    const i64 place = stream * size_;
    const float kept = keep ? keep[stream] : 1.0f;
    for (i64 i = place; i < place + size_; ++i) {
      carry_[i] = state[i] * kept;  // free until the way back
      if (before_) before_[i] = (cell_ == kLstm ? state[streams_ * size_ + i] : state[i]) * kept;
    }
    kernels().convert({{carry_, false}, first}, place, place + size_);
  }
}

CellArgs RecurrentLayer::step(i64 t, const float *keep, float *state) const {
  const i64 states = streams_ * size_;
  const bool last = t + 1 == steps_;
  CellArgs a{};
  a.cell = cell_;
  a.size = size_;
  a.gates = gates_ + t * streams_ * width_;
  a.product = product_;
  a.input_bias = weights_.input_bias;
  a.recurrent_bias = weights_.recurrent_bias;
  a.keep_next = last || !keep ? nullptr : keep + (t + 1) * streams_;
  if (before_) {
    a.before = before_ + t * states;
    a.inner = inner_ + t * states;
    a.before_next = last && cell_ == kLstm ? state + states : before_ + (t + 1) * states;
  }
  a.output = output_ + t * states;
  if (half_) a.hidden = row(hidden_, t);
  a.operand = last ? Numbers{nullptr, half_} : row(operands_, t + 1);
  return a;
}

void RecurrentLayer::forward(Numbers inputs, const float *keep, float *state, i64 begin, i64 end) {
  const i64 states = streams_ * size_;
  begin_block(keep, state, begin, end);
  for (i64 t = 0; t < steps_; ++t) {
    if (has_input_)
      kernels().product({moved(inputs, t * states), size_, 1, input_.forward_panels,
                         {gates_ + t * streams_ * width_, false}, width_, false},
                        begin, end);
    kernels().product({row(operands_, t), size_, 1, recurrent_.forward_panels,
                       {product_, false}, width_, false},
                      begin, end);
    kernels().cell_forward(step(t, keep, state), begin, end);
  }
  std::memcpy(state + begin * size_, output_ + (steps_ - 1) * states + begin * size_,
              static_cast<size_t>((end - begin) * size_) * sizeof(float));
}

CellBackArgs RecurrentLayer::step_back(i64 t, const float *d_output, const float *keep) const {
  const i64 states = streams_ * size_;
  CellBackArgs a{};
  a.cell = cell_;
  a.size = size_;
  a.last = t + 1 == steps_;
  a.gates = gates_ + t * streams_ * width_;
  if (before_) {
    a.before = before_ + t * states;
    a.inner = inner_ + t * states;
  }
  a.output = output_ + t * states;
  a.d_output = d_output + t * states;
  a.keep_next = a.last || !keep ? nullptr : keep + (t + 1) * streams_;
  a.carry = carry_;
  a.carry_cell = carry_cell_;
  a.delta = delta_.at(t * streams_ * width_);
  if (cell_ == kGru) a.products = products_.at(t * streams_ * width_).data;
  return a;
}

void RecurrentLayer::backward(const float *d_output, const float *keep, Numbers d_input, i64 begin,
                              i64 end) {
  const i64 states = streams_ * size_;
  for (i64 t = steps_ - 1; t >= 0; --t) {
    kernels().cell_backward(step_back(t, d_output, keep), begin, end);
    if (t)
      kernels().product({moved(products(), t * streams_ * width_), width_, 1,
                         recurrent_.backward_panels, {carry_, false}, size_, cell_ == kGru},
                        begin, end);
    if (has_input_ && d_input.data)
      kernels().product({delta_.at(t * streams_ * width_), width_, 1, input_.backward_panels,
                         moved(d_input, t * states), size_, false},
                        begin, end);
  }
}

void RecurrentLayer::weight_gradients(Numbers inputs, int threads) {
  const i64 words = steps_ * streams_;
  const Panels right{packed_, words, size_};
  const auto gradient = [&](Numbers left, Numbers operand, float *out) {
    pack_rows({operand, size_, nullptr, right}, words, threads);
    parallel_ranges(width_, 16384 / size_ + 1, threads, [&](i64 begin, i64 end) {
      kernels().product({left, 1, width_, right, {out, false}, size_, false}, begin, end);
    });
  };
  const auto sums = [&](Numbers values, float *out) {
    const ColumnSumArgs args{values, words, width_, nullptr, out};
    parallel_ranges(width_, 64, threads,
                    [&](i64 begin, i64 end) { kernels().column_sums(args, begin, end); });
  };
  gradient(products(), operands_, d_recurrent_);
  if (has_input_) gradient(delta_, inputs, d_input_weight_);
  if (weights_.input_bias) sums(delta_, d_input_bias_);
  if (weights_.recurrent_bias) sums(products(), d_recurrent_bias_);
}

}  // namespace blackout
