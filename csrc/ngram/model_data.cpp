#include "ngram/model_data.h"

#include <algorithm>

namespace blackout::ngram {

Id ModelData::add_word(std::string_view word) {
  if (2 * (text_ends.size() + 1) > slots.size()) grow();
  const Id id = words();
  const uint64_t mask = slots.size() - 1;
  for (uint64_t i = hash_word(word) & mask;; i = (i + 1) & mask) {
    if (slots[i] == kNone) {
      slots[i] = id;
      break;
    }
    if (this->word(slots[i]) == word) return kNone;
  }
  text.append(word);
  text_ends.push_back(text.size());
  if (word == "<unk>" || (word == "<UNK>" && unk == kNone)) unk = id;
  if (word == "<s>") bos = id;
  if (word == "</s>") eos = id;
  return id;
}

void ModelData::grow() {
  slots.assign(std::max<size_t>(1024, 2 * slots.size()), kNone);
  const uint64_t mask = slots.size() - 1;
  for (Id id = 0; id < words(); ++id) {
    uint64_t i = hash_word(word(id)) & mask;
    while (slots[i] != kNone) i = (i + 1) & mask;
    slots[i] = id;
  }
}

Model ModelData::view() const {
  Model model;
  model.order = order;
  model.words = words();
  model.unk = unk;
  model.bos = bos;
  model.eos = eos;
  for (size_t i = 0; i < nodes.size(); ++i) {
    model.nodes[i] = nodes[i].data();
    model.counts[i] = nodes[i].empty() ? 0 : nodes[i].size() - 1;
  }
  if (order > 1) model.counts[order - 1] = leaves.size();
  model.leaves = leaves.data();
  model.text_ends = text_ends.data();
  model.text = text.data();
  model.slots = slots.data();
  model.slot_mask = slots.empty() ? 0 : slots.size() - 1;
  return model;
}

}  // namespace blackout::ngram
