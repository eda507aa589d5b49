// A recurrent layer over the T steps of a block, all of its streams or some of them.
//
// Streams do not know of each other, so each thread takes some of them through all steps and all
// layers without waiting for anybody. The matrices are packed once a block and stay in cache over
// its steps. Only the gradients of the matrices join the streams: one product over all steps.
#pragma once

#include "engine/product.h"
#include "step/memory.h"

namespace blackout {

struct LayerWeights {
  const float *input;      // (G*h, h), or null: the inputs are what a step adds
  const float *recurrent;  // (G*h, h)
  const float *input_bias, *recurrent_bias;  // (G*h,), or null
};

inline i64 gates_of(int cell) { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
inline i64 state_parts(int cell) { return cell == kLstm ? 2 : 1; }

class RecurrentLayer {
 public:
  RecurrentLayer(int cell, bool has_input, i64 steps, i64 streams, i64 size, bool half);

  // Takes over the weights of this block.
  void pack(const LayerWeights &weights, int threads);

  // For streams begin … end-1. `inputs` (T, B, h): operands of the input matrix; without one they
  // are in gates(). `keep` (T, B) or null. `state` (S, B, h) before the block becomes that after.
  void forward(Numbers inputs, const float *keep, float *state, i64 begin, i64 end);
  // `d_output` (T, B, h); `d_input` (T, B, h) is filled where there is an input matrix and `data`.
  void backward(const float *d_output, const float *keep, Numbers d_input, i64 begin, i64 end);
  // After all streams: the gradients of matrices and biases.
  void weight_gradients(Numbers inputs, int threads);

  float *gates() const { return gates_; }
  const float *output() const { return output_; }
  Numbers hidden() const { return half_ ? Numbers(hidden_) : Numbers{output_.data(), false}; }
  Numbers delta() const { return delta_; }
  const float *d_input_weight() const { return d_input_weight_; }
  const float *d_recurrent() const { return d_recurrent_; }
  const float *d_input_bias() const { return d_input_bias_; }
  const float *d_recurrent_bias() const { return d_recurrent_bias_; }

 private:
  struct Matrix {  // as the right operand of the way forward and of the way back
    NumberMemory forward, backward;
    Panels forward_panels, backward_panels;
  };
  Matrix matrix() const;
  void pack_matrix(const float *weight, Matrix &to, int threads) const;
  void begin_block(const float *keep, const float *state, i64 begin, i64 end);
  CellArgs step(i64 t, const float *keep, float *state) const;
  CellBackArgs step_back(i64 t, const float *d_output, const float *keep) const;
  Numbers products() const { return cell_ == kGru ? Numbers(products_) : Numbers(delta_); }
  Numbers row(const NumberMemory &array, i64 t) const;

  int cell_;
  bool has_input_, half_;
  i64 steps_, streams_, size_, width_;  // width: G*h
  LayerWeights weights_{};
  Matrix recurrent_, input_;
  Memory<float> gates_;        // (T, B, G*h)
  Memory<float> product_;      // (B, G*h)
  Memory<float> before_;       // (T + 1, B, h)
  Memory<float> inner_;        // (T, B, h)
  Memory<float> output_;       // (T, B, h)
  NumberMemory hidden_;        // (T, B, h), where products are in bf16
  NumberMemory operands_;      // (T, B, h)
  NumberMemory delta_;         // (T, B, G*h)
  NumberMemory products_;      // (T, B, G*h), GRU
  Memory<float> carry_, carry_cell_;  // (B, h)
  NumberMemory packed_;        // right operand of the gradients of the matrices
  Memory<float> d_input_weight_, d_recurrent_, d_input_bias_, d_recurrent_bias_;
};

// Packs n rows of a matrix as rows or columns of the panels.
void pack_rows(const PackArgs &args, i64 n, int threads);
void pack_columns(const PackArgs &args, i64 n, int threads);

}  // namespace blackout
