// A whole training block in one call: gather, recurrence, sampled objective, the way back, norm,
// clipping, update. The same mathematics as train/step.py composes by autograd.
#pragma once

#include <memory>
#include <vector>

#include "step/recurrent.h"
#include "step/sampled.h"
#include "step/update.h"

namespace blackout {

struct NetworkSettings {
  i64 steps, streams, size, vocab;
  int cell, layers;
  bool forget;  // a sentence end as input word: the state before is not used
  bool half;    // products in bfloat16
  double clip;  // 0: no limit
  double dropout;  // chance that an input or an output of a layer is dropped, and
  u64 kept;        // of 2^16 those that are not
};

// The parameters of the network; empty where it has none.
struct NetworkParameters {
  Parameter embedding;
  struct Layer {
    std::unique_ptr<Parameter> input, recurrent, input_bias, recurrent_bias;
  };
  std::vector<Layer> layers;
  Parameter output;
  std::unique_ptr<Parameter> bias, log_z;
};

struct BlockResult {
  double loss, norm;
};

class TrainStep {
 public:
  TrainStep(const NetworkSettings &network, const OutputSettings &output, const OutputTables &tables,
            NetworkParameters parameters);

  // One block of words (T, B); `mask` (T, B) or null. `state` (layers, S, B, h) is taken on.
  // `noise`: with dropout a key for the inputs and one for what each layer gives. `rates`: the
  // learning rate of each parameter, by its number.
  void train(const i64 *inputs, const i64 *targets, const bool *mask, float *state,
             const std::vector<u64> &noise, u64 sample_step, const std::vector<double> &rates,
             int threads);
  std::vector<BlockResult> take_results();

 private:
  void require_words(const i64 *words, const char *name) const;
  void weigh(const bool *mask);
  i64 streams_each() const;
  void look_up(const i64 *inputs, i64 begin, i64 end);
  void forward(float *state, i64 begin, i64 end);
  void backward(i64 begin, i64 end);
  bool drops() const { return network_.dropout > 0; }
  void drop(int place, Numbers values, Numbers out, Numbers also, i64 begin, i64 end) const;
  const float *values_of(int layer) const;  // what is above it takes
  Numbers operands_of(int layer) const;     // the same, for products
  Numbers inputs_of(int layer) const;
  Numbers d_inputs() const;  // of the input words' rows
  double squared_norm(int threads);
  void update(double factor, const std::vector<double> &rates, int threads);
  double loss(const bool *mask) const;
  // body(parameter, gradient) for each dense parameter
  template <class F> void each_dense(F &&body);

  NetworkSettings network_;
  OutputTables tables_;
  NetworkParameters parameters_;
  std::vector<RecurrentLayer> layers_;
  std::unique_ptr<BlockOutput> output_;
  RowUpdate input_rows_, output_rows_;
  Memory<float> keep_;       // (T, B)
  Memory<float> factor_;     // (T, B): of each word's objective
  NumberMemory embedded_;    // (T, B, h), where the first layer has an input matrix
  NumberMemory d_embedded_;  // (T, B, h), likewise, and with dropout
  std::vector<Memory<float>> dropped_;      // (T, B, h) of each layer, with dropout
  std::vector<NumberMemory> dropped_half_;  // the same, where products are in bf16
  std::vector<u64> noise_;                  // keys of the block that is worked on
  std::vector<Memory<float>> d_output_;  // (T, B, h) of each layer
  float d_log_z_ = 0;
  std::vector<BlockResult> results_;
};

}  // namespace blackout
