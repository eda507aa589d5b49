// Drawing words from an alias table, and what the loss subtracts from the logits of words.
#pragma once

#include "engine/kernels.h"

namespace blackout {

// samples (groups, count) from an alias table over `vocab` words: a pure function of seed, step,
// group and place, the same numbers as ops/reference draws.
void draw_samples(const double *threshold, const i64 *alias, i64 vocab, u64 seed, u64 step,
                  i64 groups, i64 count, i64 *samples, int threads);

// The different words of each group in the order of their first draw, (groups, count), and how often
// each was drawn; what is left of a row is its first word, 0 times. Returns the most words of a group.
i64 merge_copies(const i64 *samples, i64 groups, i64 count, i64 *words, float *multiplicity,
                 int threads);

// out[i] = log_q[i] + constant - bias[word[i]].
void offsets(const double *log_q, const float *bias, double constant, const i64 *word, i64 n,
             float *out, int threads);

}  // namespace blackout
