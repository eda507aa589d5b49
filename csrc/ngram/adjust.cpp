#include "ngram/adjust.h"

#include <algorithm>
#include <array>

namespace blackout::ngram {
namespace {

class Adjuster {
 public:
  Adjuster(const std::vector<uint64_t> &prune, const std::vector<CountSink *> &sinks)
      : order_(sinks.size()), prune_(prune), sinks_(sinks), statistics_(sinks.size()) {}

  void add(const Word *w, uint32_t count) {
    size_t same = 0;
    while (same < open_ && w[same] == words_[same]) ++same;
    close(same, false);
    for (size_t i = 0; i < same; ++i) raw_[i] += count;
    if (same > 0) ++adjusted_[same - 1];
    open(w, count, same);
  }

  std::vector<Statistics> finish() {
    close(0, true);
    return statistics_;
  }

 private:
  // Lower orders of w from length `same` + 1 on are new; those before it stay open.
  void open(const Word *w, uint32_t count, size_t same) {
    std::copy(w + same, w + order_, words_.begin() + same);
    for (size_t n = same + 1;; ++n) {
      if (n == order_) return emit(n, count, count, count);
      raw_[n - 1] = count;
      adjusted_[n - 1] = 1;
      open_ = n;
      if (w[n - 1] == kBos) {
        adjusted_[n - 1] = count;
        return;
      }
    }
  }

  // lmplz enters the n-grams that are open at the very end into the statistics with their raw
  // counts. To give the same estimates on every text, so does this.
  void close(size_t down_to, bool at_end) {
    for (; open_ > down_to; --open_) {
      const size_t i = open_ - 1;
      emit(open_, adjusted_[i], raw_[i], at_end ? raw_[i] : adjusted_[i]);
    }
  }

  void emit(size_t n, uint32_t count, uint64_t raw, uint64_t counted_as) {
    const bool special = n == 1 && words_[0] <= kEos;
    const bool pruned = raw <= prune_[n - 1] && !special;
    statistics_[n - 1].add(counted_as, pruned);
    sinks_[n - 1]->add(words_.data(), pruned ? count | kPruned : count);
  }

  size_t order_;
  const std::vector<uint64_t> &prune_;
  const std::vector<CountSink *> &sinks_;
  std::vector<Statistics> statistics_;
  std::array<Word, kMaxOrder> words_{};
  std::array<uint64_t, kMaxOrder> raw_{};
  std::array<uint32_t, kMaxOrder> adjusted_{};
  size_t open_ = 0;  // the suffixes of words_ of lengths 1 to open_ are not complete yet
};

}  // namespace

std::vector<Statistics> adjust(Counts &counts, const std::vector<uint64_t> &prune,
                               const std::vector<CountSink *> &sinks, Tick &tick) {
  Adjuster adjuster(prune, sinks);
  uint32_t count;
  while (const Word *w = counts.next(count)) {
    adjuster.add(w, count);
    tick();
  }
  return adjuster.finish();
}

}  // namespace blackout::ngram
