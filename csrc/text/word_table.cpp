#include "text/word_table.h"

#include <limits>
#include <stdexcept>

namespace blackout {

uint64_t hash_bytes(const char *data, size_t size) {
  uint64_t hash = size;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t x;
    std::memcpy(&x, data, 8);
    hash = mix(hash ^ x) * 0x9E3779B97F4A7C15u;
  }
  uint64_t rest = 0;
  std::memcpy(&rest, data, size);
  return mix(hash ^ rest);
}

WordTable::WordTable(size_t expected) {
  size_t capacity = 16;
  while (capacity < 2 * expected) capacity *= 2;
  slots_.assign(capacity, Slot{});
  mask_ = capacity - 1;
}

uint64_t &WordTable::insert(const WordKey &key) {
  if (2 * (used_ + 1) > slots_.size()) grow();
  size_t i = key.hash & mask_;
  while (slots_[i].size) i = (i + 1) & mask_;
  Slot &slot = slots_[i];
  slot = {{key.head[0], key.head[1]}, 0, key.size, 0};
  if (key.size > kInline) {
    if (long_words_.size() > std::numeric_limits<uint32_t>::max())
      throw std::length_error("more than 4 billion long words");
    slot.index = static_cast<uint32_t>(long_words_.size());
    long_words_.emplace_back(key.data, key.size);
  }
  ++used_;
  return slot.value;
}

void WordTable::grow() {
  std::vector<Slot> old(2 * slots_.size(), Slot{});
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot &slot : old) {
    if (slot.size == 0) continue;
    size_t i = hash_head(slot.head, slot.size) & mask_;
    while (slots_[i].size) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

}  // namespace blackout
