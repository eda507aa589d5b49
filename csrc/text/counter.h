// Counts the words of a text: how often each occurs, and how many sentences there are.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/pending.h"
#include "text/scanner.h"
#include "text/word_table.h"

namespace blackout {

class CountSink {
 public:
  void word(const char *data, size_t size, const char *limit, bool lasting) {
    pending_.push(make_key(data, size, limit), table, [this](const WordKey &k) { ++table[k]; });
    if (!lasting) flush();
  }
  void line_end() { ++sentences; }
  void flush() {
    pending_.flush([this](const WordKey &k) { ++table[k]; });
  }

  WordTable table{1 << 12};
  uint64_t sentences = 0;

 private:
  Pending pending_;
};

// All distinct words joined by line ends, by falling count and then by their bytes.
struct CountedWords {
  std::string words;
  std::vector<uint64_t> ends;  // where each word ends in `words`
  std::vector<uint64_t> counts;
  uint64_t sentences = 0;
};

class WordCounter {
 public:
  WordCounter(TextOptions options, size_t threads);
  size_t feed(const uint8_t *data, size_t size, bool last) { return scanner_->feed(data, size, last); }
  // Another file begins: its lines are counted from 1 again.
  void next_file();
  // The words so far; merges what the threads found, so counting may go on afterwards.
  CountedWords result();

 private:
  TextOptions options_;
  std::vector<CountSink> sinks_;  // one a thread
  std::optional<ParallelScanner<CountSink>> scanner_;
};

}  // namespace blackout
