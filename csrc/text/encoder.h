// Turns text into word numbers with a fixed vocabulary, in the order of the text.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/pending.h"
#include "text/scanner.h"
#include "text/word_table.h"

namespace blackout {

constexpr uint32_t kEos = 0;  // id of </s>
constexpr uint32_t kUnk = 1;  // id of <unk>

// From a word to its id; only read once it is made, so threads share it.
class WordMap {
 public:
  // `words` are joined by one byte each; `ends` says where each of them ends.
  WordMap(std::string_view words, const uint64_t *ends, size_t count);
  const WordTable &table() const { return table_; }
  size_t size() const { return table_.size(); }

 private:
  WordTable table_;
};

class EncodeSink {
 public:
  explicit EncodeSink(const WordTable &table) : table_(&table) {}

  void word(const char *data, size_t size, const char *limit, bool lasting) {
    pending_.push(make_key(data, size, limit), *table_, [this](const WordKey &k) { use(k); });
    ++announced_;
    if (!lasting) flush();
  }
  void line_end() {
    // An empty key keeps the place of </s> in the queue.
    pending_.push(WordKey{{0, 0}, 0, nullptr, 0}, *table_, [this](const WordKey &k) { use(k); });
    ends.push_back(++announced_);
  }
  void flush() {
    pending_.flush([this](const WordKey &k) { use(k); });
  }
  void clear() {
    tokens.clear();
    ends.clear();
    announced_ = 0;
  }

  std::vector<uint32_t> tokens;
  std::vector<uint64_t> ends;  // of the sentences, as positions in `tokens`
  uint64_t unknown = 0;

 private:
  void use(const WordKey &key) {
    uint32_t id = kEos;
    if (key.size) {
      const WordTable::Slot *slot = table_->find(key);
      id = slot ? static_cast<uint32_t>(slot->value) : kUnk;
      unknown += id == kUnk;
    }
    tokens.push_back(id);
  }

  const WordTable *table_;
  Pending pending_;
  uint64_t announced_ = 0;
};

class Encoder {
 public:
  Encoder(std::shared_ptr<const WordMap> map, TextOptions options, size_t threads);

  // Reads from the buffer, gives the number of bytes used; what it found replaces what the
  // previous call found.
  size_t feed(const uint8_t *data, size_t size, bool last);

  std::vector<uint32_t> tokens;
  std::vector<uint64_t> ends;  // of the sentences, counted from the beginning of the text
  uint64_t total_tokens = 0, total_sentences = 0, total_unknown = 0;

 private:
  std::shared_ptr<const WordMap> map_;
  std::vector<EncodeSink> sinks_;
  ParallelScanner<EncodeSink> scanner_;
};

}  // namespace blackout
