// Words on their way to a table. A look-up in a table of many megabytes waits for memory; a
// short queue of announced look-ups lets a dozen of them wait at the same time.
#pragma once
#include <array>
#include <cstddef>

#include "text/word_table.h"

namespace blackout {

class Pending {
 public:
  // Announces a word; `use` gets the words in the order they came, some time later.
  template <class Use>
  void push(const WordKey &key, const WordTable &table, Use &&use) {
    table.prefetch(key.hash);
    keys_[count_++] = key;
    if (count_ == keys_.size()) flush(use);
  }

  template <class Use>
  void flush(Use &&use) {
    for (size_t i = 0; i < count_; ++i) use(keys_[i]);
    count_ = 0;
  }

 private:
  std::array<WordKey, 32> keys_;
  size_t count_ = 0;
};

}  // namespace blackout
