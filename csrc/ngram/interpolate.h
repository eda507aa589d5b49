// Interpolation with the next lower order: p(w | h) = prob(hw) + gamma(h) p(w | h without its
// first word). Both orders arrive in suffix order, so this is one merging pass.
#pragma once
#include <stdexcept>

#include "ngram/backoff.h"

namespace blackout::ngram {

template <int N, class Sorter>
void interpolate_order(Sorter &grams, const Spool &lower, ProbabilitySink &out, Tick &tick) {
  SpoolReader suffix(lower);
  suffix.next();
  while (const Discounted<N> *gram = grams.next()) {
    while (suffix.current() && compare_words<N - 1>(suffix.current(), gram->w) < 0) suffix.next();
    if (!suffix.current() || compare_words<N - 1>(suffix.current(), gram->w) != 0)
      throw std::logic_error("an n-gram without its suffix");
    out.put(gram->w, gram->prob + gram->gamma * suffix.value());
    tick();
  }
}

}  // namespace blackout::ngram
