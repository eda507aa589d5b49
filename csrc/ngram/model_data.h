// The arrays of a model while it is made and when it lives in memory.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ngram/model.h"

namespace blackout::ngram {

struct ModelData {
  size_t order = 0;
  Id unk = kNone, bos = kNone, eos = kNone;
  std::vector<uint64_t> text_ends;
  std::string text;
  std::vector<Id> slots;
  std::vector<std::vector<Node>> nodes;  // levels 1 to order - 1 (at least one), with sentinels
  std::vector<Leaf> leaves;

  Id words() const { return static_cast<Id>(text_ends.size()); }

  std::string_view word(Id id) const {
    const size_t begin = static_cast<size_t>(id ? text_ends[id - 1] : 0);
    return {text.data() + begin, static_cast<size_t>(text_ends[id]) - begin};
  }

  // Appends a word; kNone when it is there already.
  Id add_word(std::string_view word);

  // Valid as long as the arrays are not touched.
  Model view() const;

 private:
  void grow();
};

}  // namespace blackout::ngram
