// Reads ARPA text, whoever wrote it, and refuses what is not complete and consistent.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/model_data.h"
#include "ngram/trie.h"
#include "text/word_table.h"

namespace blackout::ngram {

// Takes the file buffer by buffer. Faults are std::invalid_argument: "line N: ...".
class ArpaReader {
 public:
  ArpaReader() = default;
  ArpaReader(const ArpaReader &) = delete;
  ArpaReader &operator=(const ArpaReader &) = delete;

  size_t feed(const uint8_t *data, size_t size, bool last);

  // After the last feed.
  ModelData take();

 private:
  enum class Part { preamble, counts, section, done };
  static constexpr size_t kMaxLine = 4 << 20;

  void line(std::string_view text);
  void count_line(std::string_view text);
  void heading(std::string_view text);
  void begin_section(size_t order);
  void end_section();
  void entry(std::string_view text);
  void unigram(std::string_view word, float prob, float backoff);
  void find_words(const std::string_view *fields, const char *limit);
  void finish();
  [[noreturn]] void fail(const std::string &what) const;

  Part part_ = Part::preamble;
  uint64_t line_ = 0;
  std::string pending_;  // the beginning of a line that is not complete yet
  std::vector<uint64_t> announced_;
  size_t section_ = 0;
  uint64_t found_ = 0;
  ModelData data_;
  WordTable table_;  // the words of data_, in a table made for many look-ups: id + 1
  std::array<Id, kMaxModelOrder> words_{};  // of the last n-gram
  std::vector<std::unique_ptr<Level>> levels_;
};

}  // namespace blackout::ngram
