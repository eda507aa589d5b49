// The letters of all words, laid out for copying millions of them: most words are one load and
// one store of 16 bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ngram/gram.h"

namespace blackout::ngram {

class WordTexts {
 public:
  static constexpr size_t kSlack = 16;  // a copy may write so many bytes beyond its end

  explicit WordTexts(const std::vector<std::string> &words) : words_(words), slots_(words.size()) {
    for (size_t i = 0; i < words.size(); ++i) {
      const bool fits = words[i].size() <= kInline;
      slots_[i].size = fits ? static_cast<uint8_t>(words[i].size()) : kLong;
      if (fits) std::memcpy(slots_[i].text, words[i].data(), words[i].size());
    }
  }

  size_t size(Word w) const { return slots_[w].size == kLong ? words_[w].size() : slots_[w].size; }
  void prefetch(Word w) const { __builtin_prefetch(&slots_[w]); }

  // Gives the end of the copy.
  char *copy(Word w, char *out) const {
    const Slot &slot = slots_[w];
    if (slot.size == kLong) {
      std::memcpy(out, words_[w].data(), words_[w].size());
      return out + words_[w].size();
    }
    std::memcpy(out, &slot, sizeof slot);
    return out + slot.size;
  }

 private:
  static constexpr size_t kInline = 15;
  static constexpr uint8_t kLong = 255;
  struct alignas(16) Slot {
    char text[kInline] = {};
    uint8_t size = 0;
  };
  const std::vector<std::string> &words_;
  std::vector<Slot> slots_;
};

}  // namespace blackout::ngram
