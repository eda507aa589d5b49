// RMSProp over the gradients of a block, row-sparse and dense (optim/rmsprop.py has the options).
#pragma once

#include <vector>

#include "step/memory.h"

namespace blackout {

enum Decay { kExact = 0, kPaper = 1, kNone = 2 };

// A parameter with its optimiser state, where Python keeps them, and its settings.
struct Parameter {
  Numbers weight;
  i64 rows, size;  // a dense one is one row
  float *moment;
  bool row_moment;            // one second moment a row
  int32_t *touched;           // (rows,): the step of the last update; null for a dense one
  i64 *step;                  // updates so far
  const double *update_rate;  // (rows,), with kPaper
  int decay;
  double beta, damping, weight_decay;
  bool correct_bias;
  u64 seed, number;  // of the random bits that round a bfloat16 table
};

// What a step of a parameter uses: v as it is does what v / (1 - beta^step) would do.
struct Rate {
  double lr, damping;
};
Rate corrected(const Parameter &p, double lr);

// The row-sparse gradient of one table.
class RowUpdate {
 public:
  explicit RowUpdate(i64 most_rows);

  // Sorts the rows that have a gradient; may run beside others on one thread.
  void collect(const i64 *rows, i64 n);
  double squared_norm(Numbers values, i64 size, int threads);
  void apply(const Parameter &p, Numbers values, double factor, double lr, int threads);

 private:
  RowGradient gradient(Numbers values, i64 size) const;
  void age(const Parameter &p, i64 begin, i64 end);
  float power(double beta, i64 waited) const;
  void keep_powers(double beta);
  template <class F> void over_rows(i64 size, int threads, F &&body);

  i64 distinct_ = 0;
  Memory<i64> rows_, start_;
  Memory<int32_t> order_;
  Memory<double> norms_;
  Memory<float> agings_;
  std::vector<Memory<float>> scratch_;  // of each thread
  i64 scratch_size_ = 0;
  std::vector<float> powers_;  // beta^n, of this beta
  double powers_of_ = -1;
};

double dense_squared_norm(const float *values, i64 n, int threads);
void apply_dense(const Parameter &p, const float *gradient, double factor, double lr, int threads);

}  // namespace blackout
