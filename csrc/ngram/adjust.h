// Adjusted counts: what an n-gram below the highest order counts in Kneser-Ney.
//
// It is the number of different words seen in front of it; but n-grams that begin with <s>, and
// all of the highest order, keep their raw counts. One pass over the highest order in suffix
// order gives all lower orders, in suffix order too.
#pragma once
#include <cstdint>
#include <vector>

#include "ngram/count.h"
#include "ngram/discount.h"
#include "ngram/tick.h"

namespace blackout::ngram {

// Receives the n-grams of one order; `count` carries kPruned.
class CountSink {
 public:
  virtual ~CountSink() = default;
  virtual void add(const Word *w, uint32_t count) = 0;
};

// prune[n - 1]: n-grams of order n whose raw count is not above it are marked as pruned.
// sinks[n - 1] receives order n. Gives the statistics of each order.
std::vector<Statistics> adjust(Counts &counts, const std::vector<uint64_t> &prune,
                               const std::vector<CountSink *> &sinks, Tick &tick);

}  // namespace blackout::ngram
