// Scores a long text: many sentences side by side.
//
// A look-up in a model of gigabytes waits for memory most of the time, and within a sentence
// each look-up depends on the one before. Sentences do not depend on each other, so a dozen of
// them take their steps together and their waiting overlaps.
#pragma once
#include "ngram/model.h"

namespace blackout::ngram {

// out[i] = log10 P(ids[i] | what precedes it). A sentence ends at </s>. `state` is where the
// first sentence begins, and afterwards where the last one stopped.
void score_text(const Model &model, const Id *ids, size_t n, State &state, float *out);

}  // namespace blackout::ngram
