// An output layer over a block: objectives of all words, and all their gradients.
#pragma once

#include "engine/kernels.h"

namespace blackout {

struct OutputTables {
  Numbers weight;           // (V, h), or (V - 1, h): the vectors of a tree
  const float *bias;        // one for each row, or null
  const float *log_z;       // or null
  double constant_log_z;    // where it is not learned
  const double *threshold;  // (V,), the alias table
  const i64 *alias;         // (V,)
  const double *log_q;      // (V,)
  TreeArrays tree;          // over the words; without any where samples are drawn
};

class BlockOutput {
 public:
  virtual ~BlockOutput() = default;

  // What a layer draws for a step.
  virtual void draw(const OutputTables &tables, u64 step, const i64 *target, int threads) = 0;
  // From hidden states (words, h), also as operands of products, and the factor of each word's
  // objective to J of each word and all gradients; `d_hidden` (words, h).
  virtual void run(const OutputTables &tables, const float *hidden, Numbers operands,
                   const i64 *target, const float *factor, float *d_hidden, int threads) = 0;

  virtual const float *values() const = 0;
  // The rows of the table that have a gradient, with repetition, and their gradients.
  virtual i64 gradient_rows() const = 0;
  virtual const i64 *rows() const = 0;
  virtual Numbers row_values() const = 0;
  virtual const float *bias_values() const = 0;  // only with a bias or learned log Z
  virtual float d_log_z() const = 0;
};

}  // namespace blackout
