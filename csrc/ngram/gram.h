// An n-gram as the estimation handles it: word numbers, the last word first.
//
// With the last word first, comparing two n-grams word by word gives "suffix order": an n-gram
// comes right behind its own suffix, which is what interpolation needs. Comparing from the
// second word on and the first one last gives "context order": all continuations of a context
// stand together, and the contexts themselves are in suffix order.
#pragma once
#include <cstddef>
#include <cstdint>

namespace blackout::ngram {

using Word = uint32_t;
constexpr Word kUnk = 0, kBos = 1, kEos = 2;
constexpr int kMaxOrder = 6;  // of an estimation

// Counts share 32 bits with the mark of pruned n-grams.
constexpr uint32_t kPruned = 0x80000000u;
constexpr uint32_t kMaxCount = kPruned - 1;

inline uint64_t word_pair(const Word *w) { return uint64_t{w[0]} << 32 | w[1]; }

// Compares two words at a time: -1, 0 or 1.
template <int N>
inline int compare_words(const Word *a, const Word *b) {
  if constexpr (N >= 2) {
    const uint64_t x = word_pair(a), y = word_pair(b);
    if (x != y) return x < y ? -1 : 1;
    return compare_words<N - 2>(a + 2, b + 2);
  } else if constexpr (N == 1) {
    return a[0] < b[0] ? -1 : a[0] > b[0];
  } else {
    return 0;
  }
}

template <int N>
struct SuffixOrder {
  template <class R>
  bool operator()(const R &a, const R &b) const {
    return compare_words<N>(a.w, b.w) < 0;
  }
};

template <int N>
struct ContextOrder {
  template <class R>
  bool operator()(const R &a, const R &b) const {
    const int c = compare_words<N - 1>(a.w + 1, b.w + 1);
    return c ? c < 0 : a.w[0] < b.w[0];
  }
};

// An n-gram and how often it was seen (raw or adjusted).
template <int N>
struct Counted {
  Word w[N];
  uint32_t count;
};

// An n-gram with the discounted probability of its last word and the share of its context's
// mass that goes to the lower order.
template <int N>
struct Discounted {
  Word w[N];
  float prob, gamma;
};

}  // namespace blackout::ngram
