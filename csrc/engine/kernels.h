// The inner loops, compiled once for each instruction set and chosen at run time.
//
// A kernel works on a range begin … end-1 of rows, words or numbers; the callers divide the range
// among threads. Tables and products are float32 or bfloat16 (the upper half of a float32); sums
// are float32 or better.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blackout {

using i64 = int64_t;
using u64 = uint64_t;
using bf16 = uint16_t;

// A read-only or writable array of float32 or bfloat16 numbers.
struct Numbers {
  void *data;
  bool half;  // bfloat16
};

struct FillArgs {
  Numbers table;  // (rows, size)
  i64 size;
  const i64 *rows;  // their numbers in the whole table, or null: 0, 1, …
  u64 key;
  float limit;
};

struct GatherArgs {
  Numbers table;  // (V, size)
  const i64 *rows;
  i64 size;
  Numbers out;  // (rows, size)
};

enum Objective { kBlackout = 0, kBlackoutNoise = 1, kSampled = 2, kNce = 3 };

// Words of a block in groups of `group_words` that share `samples` samples.
struct WordArgs {
  int objective;
  bool keep_copies;  // of the target, among its samples
  i64 group_words, samples, size;
  const float *hidden;         // (words, size)
  Numbers table;               // (V, size)
  const i64 *target;           // (words,)
  const float *target_offset;  // (words,), log Q (+ log K + log Z) - bias
  const i64 *sample;           // (groups, samples)
  const float *sample_offset;  // (groups, samples)
  Numbers logits;              // (words, samples): u on entry, dJ/du on return
  float *value;                // (words,): J
  float *d_target;             // (words,): dJ/du of the target
};

// What the backward pass makes of the hidden states: operands of a product and gradients of rows.
struct ScaleArgs {
  i64 size;
  const float *hidden;    // (words, size)
  const float *factor;    // (words,)
  const float *d_target;  // (words,)
  Numbers scaled;         // (words, size) = hidden * factor
  Numbers target_rows;    // (words, size) = hidden * factor * d_target
};

struct HiddenGradientArgs {
  i64 size;
  Numbers product;        // (words, size)
  Numbers table;          // (V, size)
  const i64 *target;      // (words,)
  const float *d_target;  // (words,)
  const float *factor;    // (words,)
  float *out;             // (words, size) = (product + d_target * row of target) * factor
};

struct ConvertArgs {
  Numbers from, to;
};

// Streaming log-sum-exp: takes one tile of logits into the running maximum and total.
struct LogSumArgs {
  i64 size;  // logits of a tile
  Numbers logits;
  const float *bias;  // (size,) or null
  float *maximum, *total;
};

// A row-sparse gradient: `values` rows order[start[i]] … order[start[i+1]-1] belong to rows[i].
struct RowGradient {
  i64 size;
  const i64 *rows, *start;
  const int32_t *order;
  Numbers values;
};

struct RmsPropArgs {
  float factor, lr, beta, damping;
  float aging;           // for all, or
  const float *agings;   // one for each row of the gradient
  int row_moment;        // one second moment a row
  u64 rounding;          // key of the random bits that round a bfloat16 weight
};

struct UpdateArgs {
  RowGradient gradient;
  RmsPropArgs settings;
  Numbers table;  // (V, size)
  float *moment;  // (V, size) or (V,)
};

enum Activation { kSigmoid = 0, kTanh = 1, kRelu = 2 };

// One time step over `end - begin` streams.
struct StepArgs {
  int activation;
  i64 size;
  Numbers product;       // (B, size): W s of the step before; null at the start of a backward pass
  const float *input;    // forward: x_t;  backward: the gradient of s_t
  const float *output;   // backward: s_t
  const float *keep;     // (B,) or null.  forward: of the next step;  backward: of the next step
  float *result;         // forward: s_t;  backward: the gradient of x_t + W s
  Numbers operand;       // forward: kept s_t for the next product;  backward: result; or null
};

struct Kernels {
  const char *name;
  void (*fill_uniform)(const FillArgs &, i64 begin, i64 end, float *scratch);
  void (*gather)(const GatherArgs &, i64 begin, i64 end);
  void (*words)(const WordArgs &, i64 begin, i64 end, float *scratch);
  void (*scale_hidden)(const ScaleArgs &, i64 begin, i64 end);
  void (*hidden_gradient)(const HiddenGradientArgs &, i64 begin, i64 end);
  void (*convert)(const ConvertArgs &, i64 begin, i64 end);
  void (*log_sum)(const LogSumArgs &, i64 begin, i64 end);
  void (*sum_rows)(const RowGradient &, float *out, i64 begin, i64 end);
  void (*squared_norms)(const RowGradient &, double *out, i64 begin, i64 end, float *scratch);
  double (*sum_of_squares)(Numbers, i64 begin, i64 end);
  void (*update_rows)(const UpdateArgs &, i64 begin, i64 end, float *scratch);
  void (*update_dense)(const UpdateArgs &, i64 begin, i64 end);
  void (*step_forward)(const StepArgs &, i64 begin, i64 end);
  void (*step_backward)(const StepArgs &, i64 begin, i64 end);
};

// Numbers a thread's scratch memory must hold: `words` and the row kernels.
inline i64 word_scratch(i64 samples) { return 2 * ((samples + 63) / 64 * 64) + 64; }

extern const Kernels portable_kernels;
#if defined(BLACKOUT_X86)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

// The best set for this processor, or the one BLACKOUT_ISA names; throws if it cannot run here.
const Kernels &kernels();

}  // namespace blackout
