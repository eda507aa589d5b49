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
  const float *multiplicity;   // (groups, samples): copies of each, or null: one
  Numbers logits;              // (words, samples): u
  Numbers derivatives;         // (words, samples): dJ/du; may be the logits' own memory
  float *value;                // (words,): J
  float *d_target;             // (words,): dJ/du of the target
};

// Words of a block against the columns of one rank, in three rounds; groups share columns.
struct RoundArgs {
  i64 group_words, columns;
  Numbers logits;         // (words, columns): u
  const float *offset;    // (groups, columns): log Q - bias
  const float *copies;    // (groups, columns): 0 where a column does not count
  const i64 *replaced;    // (words,): a column of which one copy less counts, or -1; or null: none
  float *e;               // (words, columns): may be the logits' own memory
  float *peak, *rest;     // (words,): maximum and sum of exponentials without one copy of the top
  float *top_z, *left;    // (words,): the top's z, and how many copies of it are left
  i64 *top;               // (words,): its column
  const float *to_p;      // (words,): what turns e into p
  float *odds, *miss;     // (words,): sums over columns
  const float *odds_sum;  // (words,): over all ranks, without the top of all
  const float *to_share;  // (words,): what turns e into p_top p / (1 - p_top)
  const float *d_top;     // (words,): the derivative by the column `top`
  Numbers derivatives;    // (words, columns): may be the memory of e
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
  float shrink;          // part that a weight loses before the step
  float aging;           // for all, or
  const float *agings;   // one for each row of the gradient
  int row_moment;        // one second moment a row
  u64 rounding;          // key of the random bits that round a bfloat16 weight
  const i64 *numbers;    // of the gradient's rows in the whole table; null where this is the whole
};

struct UpdateArgs {
  RowGradient gradient;
  RmsPropArgs settings;
  Numbers table;  // (V, size)
  float *moment;  // (V, size) or (V,)
};

struct AdamArgs {
  UpdateArgs update;
  float *mean;           // (V, size): the first moments
  float momentum;        // their memory, for all, or
  const float *momenta;  // one for each row of the gradient
};

// A tree over words as ops/tree.py has it: of words, then of inner nodes.
struct TreeArrays {
  i64 words;
  const int32_t *up, *place;  // (2 words - 1,)
  const int32_t *first;       // (words,)
};

// Words and the choices on their paths; an entry is a vector of a node on the path of a word.
struct PathArgs {
  i64 size;
  const float *hidden;  // (words, size)
  Numbers table;        // (V - 1, size)
  const float *bias;    // (V - 1,) or null
  TreeArrays tree;
  const i64 *target;  // (words,)
  i64 longest;        // entries of a path
  float *value;       // (words,): J
  // for gradients; null where only J is wanted
  const float *factor;                  // (words,): of dJ/ds, or null: 1
  const i64 *step_start, *entry_start;  // (words + 1,): where those of each word begin
  i64 *step_node;                       // (steps,)
  int32_t *step_word;                   // (steps,)
  i64 *step_entry;                      // (steps,): the first entry
  float *derivative;                    // (entries,): dJ/du
  float *d_hidden;                      // (words, size): factor dJ/ds
};

// The gradients of the vectors of nodes; the steps order[start[i]] … order[start[i+1]-1] are at the
// i-th node, whose vectors are rows row_start[i] … row_start[i+1]-1 of the gradient.
struct PathRowArgs {
  i64 size;
  const float *hidden;  // (words, size)
  const float *factor;  // (words,)
  const i64 *start;
  const int32_t *order;
  const i64 *row_start;
  const int32_t *step_word;
  const i64 *step_entry;
  const float *derivative;
  float *row_values;   // (rows, size)
  float *bias_values;  // (rows,)
};

enum Activation { kSigmoid = 0, kTanh = 1, kRelu = 2 };
enum Cell { kLstm = 3, kGru = 4 };  // besides the activations, which are the simple cells

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

// One time step of a recurrent layer with G gates, over streams begin … end-1.
struct CellArgs {
  int cell;
  i64 size;
  float *gates;          // (B, G*size): the inputs on entry; on return of LSTM and GRU the gates
  const float *product;  // (B, G*size): W times the kept state before
  const float *input_bias, *recurrent_bias;  // (G*size,), or null
  const float *keep_next;  // (B,): whether the next step uses the state; null: it does
  const float *before;     // (B, size): the kept cells (LSTM) or states (GRU) before the step
  float *before_next;      // the same for the next step
  float *inner;            // (B, size): tanh of the cells (LSTM), W_n s + b_n (GRU)
  float *output;           // (B, size): s
  Numbers hidden;          // (B, size): s for products, or null
  Numbers operand;         // (B, size): the kept s for the next step's product, or null
};

struct CellBackArgs {
  int cell;
  i64 size;
  bool last;  // no step comes after
  const float *gates, *before, *inner, *output;
  const float *d_output;   // (B, size): the gradient of s from above
  const float *keep_next;  // (B,) or null
  float *carry;            // (B, size): by the kept state of the step after; on return of the GRU
                           // the direct part of that by the state before
  float *carry_cell;       // (B, size): the same for the LSTM's cells
  Numbers delta;           // (B, G*size): by the inputs
  void *products;          // (B, G*size): by the products, where that differs (GRU)
};

struct ColumnSumArgs {
  Numbers values;  // (rows, columns)
  i64 rows, columns;
  const float *factor;  // (rows,) or null
  float *out;           // (columns,)
};

// What dropout leaves of some numbers, in one or two formats. Which stay is a pure function of the
// key and of their places (ops/reference/dropout.py).
struct DropArgs {
  Numbers values;
  u64 key;
  u64 kept;     // of 2^16 numbers those that stay
  float scale;  // of those
  Numbers out;   // may be the values' own memory
  Numbers also;  // or null
};

struct PackArgs;     // product.h
struct ProductArgs;

struct Kernels {
  const char *name;
  void (*fill_uniform)(const FillArgs &, i64 begin, i64 end, float *scratch);
  void (*gather)(const GatherArgs &, i64 begin, i64 end);
  void (*words)(const WordArgs &, i64 begin, i64 end, float *scratch);
  void (*round_one)(const RoundArgs &, i64 begin, i64 end, float *scratch);
  void (*round_two)(const RoundArgs &, i64 begin, i64 end);
  void (*round_three)(const RoundArgs &, i64 begin, i64 end);
  void (*scale_hidden)(const ScaleArgs &, i64 begin, i64 end);
  void (*hidden_gradient)(const HiddenGradientArgs &, i64 begin, i64 end);
  void (*convert)(const ConvertArgs &, i64 begin, i64 end);
  void (*log_sum)(const LogSumArgs &, i64 begin, i64 end);
  void (*paths)(const PathArgs &, i64 begin, i64 end, float *numbers, int32_t *rows);
  void (*path_rows)(const PathRowArgs &, i64 begin, i64 end);
  void (*sum_rows)(const RowGradient &, float *out, i64 begin, i64 end);
  void (*squared_norms)(const RowGradient &, double *out, i64 begin, i64 end, float *scratch);
  double (*sum_of_squares)(Numbers, i64 begin, i64 end);
  void (*update_rows)(const UpdateArgs &, i64 begin, i64 end, float *scratch);
  void (*update_dense)(const UpdateArgs &, i64 begin, i64 end);
  void (*adam_rows)(const AdamArgs &, i64 begin, i64 end, float *scratch);
  void (*adam_dense)(const AdamArgs &, i64 begin, i64 end);
  void (*step_forward)(const StepArgs &, i64 begin, i64 end);
  void (*step_backward)(const StepArgs &, i64 begin, i64 end);
  void (*cell_forward)(const CellArgs &, i64 begin, i64 end);
  void (*cell_backward)(const CellBackArgs &, i64 begin, i64 end);
  void (*column_sums)(const ColumnSumArgs &, i64 begin, i64 end);
  void (*drop)(const DropArgs &, i64 begin, i64 end);
  void (*pack_rows)(const PackArgs &, i64 begin, i64 end);
  void (*pack_columns)(const PackArgs &, i64 begin, i64 end);
  void (*product)(const ProductArgs &, i64 begin, i64 end);
};

// Numbers a thread's scratch memory must hold: `words` and the row kernels.
inline i64 word_scratch(i64 samples) { return 3 * ((samples + 63) / 64 * 64) + 64; }

extern const Kernels portable_kernels;
#if defined(BLACKOUT_X86)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels avx512bf16_kernels;
#endif

// The best set for this processor, or the one BLACKOUT_ISA names; throws if it cannot run here.
const Kernels &kernels();

}  // namespace blackout
