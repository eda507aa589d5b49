// The ARPA text of a model, section by section, formatted by all threads.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ngram/backoff.h"
#include "ngram/word_texts.h"

namespace blackout::ngram {

using Write = std::function<void(const char *, size_t)>;

// A log10 value with seven decimals at most: closer than float32 tells values apart from 1 on.
char *format_log10(double value, char *out);

// Lines of n-grams, in the order they come. Blocks are formatted side by side and written in
// turn by the calling thread.
class ArpaLines {
 public:
  // With `backoffs`, each line ends in the back-off weight.
  ArpaLines(int order, bool backoffs, const WordTexts &words, size_t threads,
            const Write &write);
  ~ArpaLines();

  void put(const Word *w, float probability, float backoff) {
    records_.insert(records_.end(), w, w + order_);
    numbers_.push_back(probability);
    numbers_.push_back(backoff);
    if (numbers_.size() == 2 * kBlock) submit();
  }
  void finish();

 private:
  struct Block {
    std::vector<Word> words;
    std::vector<float> numbers;
    std::string text;
    bool taken = false, done = false;
  };
  static constexpr size_t kBlock = 1 << 15;

  void submit();
  void write_first();
  void work();
  void format(Block &block) const;

  size_t order_;
  bool backoffs_;
  const WordTexts &words_;
  const Write &write_;
  std::vector<Word> records_;
  std::vector<float> numbers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Block>> blocks_;
  std::exception_ptr raised_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

// One section below the highest order: probabilities joined with the back-off weights of the
// contexts; an n-gram that is no context has weight 1.
void write_section(const Spool &probabilities, const Spool &gammas, ArpaLines &lines, Tick &tick);

}  // namespace blackout::ngram
