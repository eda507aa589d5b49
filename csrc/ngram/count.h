// Counting: every n-gram of the highest order, in suffix order, with its count.
//
// A sentence is padded on the left with n - 1 times <s>, so that every word and the </s> at the
// end is the last word of exactly one n-gram.
#pragma once
#include <array>
#include <memory>

#include "ngram/external_sort.h"
#include "ngram/gram.h"

namespace blackout::ngram {

class Counts {
 public:
  virtual ~Counts() = default;
  virtual void push(const Word *w) = 0;  // the last word first
  virtual void finish() = 0;
  virtual const Word *next(uint32_t &count) = 0;
  virtual void release() = 0;
};

std::unique_ptr<Counts> make_counts(int order, const Resources &resources);

// Feeds words of sentences into counts.
class Counter {
 public:
  Counter(int order, Counts &counts) : order_(static_cast<size_t>(order)), counts_(counts) {
    start();
  }

  void word(Word word) {
    for (size_t i = order_ - 1; i > 0; --i) window_[i] = window_[i - 1];
    window_[0] = word;
    counts_.push(window_.data());
    ++tokens_;
  }

  void end() {
    word(kEos);
    ++sentences_;
    start();
  }

  uint64_t tokens() const { return tokens_; }  // sentence ends included
  uint64_t sentences() const { return sentences_; }

 private:
  void start() { window_.fill(kBos); }

  size_t order_;
  Counts &counts_;
  std::array<Word, kMaxOrder> window_;
  uint64_t tokens_ = 0, sentences_ = 0;
};

}  // namespace blackout::ngram
