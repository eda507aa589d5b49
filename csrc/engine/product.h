// Matrix products of our own: C = A B, or C += A B, in float32 or with bfloat16 operands.
//
// The right operand is packed first, once for as many products as use it (a recurrent matrix over
// all time steps, the gathered rows of a sample set over all words that share it). The left operand
// and the result stay as they lie. The functions are members of Kernels (kernels.h):
//
//     float *memory = …;  // panel_numbers(h, h) numbers
//     const Panels right{{memory, false}, h, h};
//     kernels().pack_columns({{weight, false}, h, nullptr, right}, 0, h);        // B = W^T
//     kernels().product({{state, false}, h, 1, right, {out, false}, h, false}, 0, streams);
//
// The three products of a layer with rows W (K, h), hidden states H (M, h) and D = dJ/du (M, K):
//
//     U  = H W^T   pack_columns of W;  left H (row_step h, depth_step 1)
//     dH = D W     pack_rows of W;     left D (row_step K, depth_step 1)
//     dW = D^T H   pack_rows of H;     left D (row_step 1, depth_step K): rows of C are columns of D
//
// An element of C is one sum over the depth, in order, whatever the ranges a caller divides the
// rows into: results do not depend on the number of threads. Sums are float32. Panels of bfloat16
// multiply bfloat16 numbers: a float32 left operand is rounded to the nearest. NaN and infinities
// propagate. Denormal bfloat16 operands and denormal sums of bfloat16 products count as 0 where the
// processor's own bfloat16 instruction is used ("avx512bf16"); everything else keeps them.
#pragma once

#include "engine/kernels.h"

namespace blackout {

// The right operand B, (depth, columns), packed. The memory is best aligned to 64 bytes.
struct Panels {
  Numbers data;
  i64 depth, columns;
};

// Ranges of pack_rows and pack_columns begin at multiples of this, so that threads may share panels.
constexpr i64 kPackUnit = 64;

// Numbers that the panels of a (depth, columns) operand hold, in either format.
inline i64 panel_numbers(i64 depth, i64 columns) {
  return (depth + 1) / 2 * 2 * ((columns + 15) / 16 * 16);
}

// Rows of a matrix or, with `rows`, of a table: row i is `from` + (rows ? rows[i] : i) * stride.
struct PackArgs {
  Numbers from;
  i64 stride;
  const i64 *rows;
  Panels to;
};

// A(i, k) = left[i * row_step + k * depth_step]; one of the two steps is 1.
struct ProductArgs {
  Numbers left;
  i64 row_step, depth_step;
  Panels right;
  Numbers out;  // (rows, columns)
  i64 out_step;
  bool add;  // to what `out` holds
};

// Rows of a product that are worth a thread of their own; fewer are done before it has woken up.
inline i64 product_grain(i64 depth, i64 columns) {
  return (i64{1} << 18) / (depth * columns > 0 ? depth * columns : 1) + 1;
}

// In Kernels:
//   pack_rows      rows begin … end-1 of B are rows of `from`, each `to.columns` long
//   pack_columns   columns begin … end-1 of B are rows of `from`, each `to.depth` long
//   product        rows begin … end-1 of C

}  // namespace blackout
