// From text to an ARPA model: the stages count, adjust, discount, back off, interpolate, write,
// in the way lmplz of KenLM defines them.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/count.h"
#include "ngram/discount.h"
#include "ngram/tick.h"
#include "ngram/write.h"
#include "text/scanner.h"
#include "text/word_table.h"

namespace blackout::ngram {

struct Settings {
  int order = 5;
  size_t memory = 0;  // bytes for sorting
  size_t threads = 1;
  std::string folder;           // for temporary files
  std::vector<uint64_t> prune;  // a threshold for each order
  std::optional<std::array<double, 3>> fallback;
  TextOptions text;
};

struct Estimate {
  std::vector<uint64_t> ngrams;     // of each order, as written
  std::vector<Discount> discounts;  // of each order
  std::vector<std::string> failed;  // of each order: why the closed form failed, or ""
};

// The words of a piece of text as numbers; words not in the table yet wait in `unseen`.
struct WordNumbers {
  static constexpr Word kUnseen = ~Word{0};

  void word(const char *data, size_t size, const char *limit, bool);
  void line_end() { numbers.push_back(kEos); }
  void flush() {}

  const WordTable *table = nullptr;
  std::vector<Word> numbers;
  std::vector<std::string> unseen;
};

class Estimator {
 public:
  explicit Estimator(const Settings &settings);

  // Makes this word part of the vocabulary; after the first such call all words of the text
  // that were not announced are <unk>. Before the first text.
  void announce(std::string_view word);

  // Line numbers start again.
  void next_file() { scanner_.emplace(settings_.text, pieces_); }

  // Counts text; gives the number of bytes used.
  size_t feed(const uint8_t *data, size_t size, bool last);

  Estimate estimate(const Write &write, const Progress &progress);

  uint64_t tokens() const { return counter_.tokens(); }
  uint64_t sentences() const { return counter_.sentences(); }
  uint64_t types() const { return words_.size(); }

 private:
  Word add_word(std::string_view word);
  void count_numbers(WordNumbers &piece);
  void begin_arpa(const std::vector<uint64_t> &ngrams, const Write &write) const;
  std::vector<Discount> discounts(const std::vector<Statistics> &statistics, Estimate &estimate);
  void write_orders(Unigrams &unigrams, std::vector<std::unique_ptr<Order>> &orders,
                    const Estimate &estimate, const Write &write, const Progress &progress);

  Settings settings_;
  WordTable table_;
  std::vector<std::string> words_;
  bool limited_ = false;
  std::unique_ptr<Counts> counts_;
  Counter counter_;
  std::vector<WordNumbers> pieces_;
  std::optional<ParallelScanner<WordNumbers>> scanner_;
};

}  // namespace blackout::ngram
