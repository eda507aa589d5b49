// The distinct rows of a row-sparse gradient and where each occurs.
#pragma once

#include "engine/kernels.h"

namespace blackout {

// Sorts n row numbers (radix sort, stable). Fills rows (distinct, ascending), start (one more entry
// than distinct rows) and order (n places in the gradient); returns the number of distinct rows.
i64 collect_rows(const i64 *gradient_rows, i64 n, i64 *rows, i64 *start, int32_t *order);

// Splits the distinct rows so that each of `parts` has about as many occurrences as the others:
// the first row of part `part`.
i64 first_row(const i64 *start, i64 distinct, int part, int parts);

}  // namespace blackout
