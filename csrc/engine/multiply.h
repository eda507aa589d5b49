// Matrix products of arrays as they lie: C = A B for each of a batch, the right operand packed here.
#pragma once

#include "engine/product.h"

namespace blackout {

// Matrices, one behind the other; element (i, j) of one is data[i * row_step + j * column_step].
struct Operand {
  Numbers data;
  i64 batch_step, row_step, column_step;
};

struct MultiplyArgs {
  i64 batch, rows, depth, columns;
  Operand left;   // (rows, depth); one of its steps is 1
  Operand right;  // (depth, columns); likewise, and in the format of the left one
  Operand out;    // (rows, columns); column_step 1
};

void multiply(const MultiplyArgs &args, int threads);

}  // namespace blackout
