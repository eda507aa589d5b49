// A hash table from words (byte strings without NUL) to numbers, made for Zipfian text: most
// words fit into the slot itself, so that the common look-up touches one cache line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace blackout {

// A word prepared for look-up. Words of up to 16 bytes are `head`, zero-padded; of longer ones
// head holds a hash and the last 8 bytes, and `data` is compared as well.
struct WordKey {
  uint64_t head[2];
  uint64_t hash;
  const char *data;
  uint32_t size;
};

constexpr uint32_t kInline = 16;

inline uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

inline uint64_t hash_head(const uint64_t head[2], uint32_t size) {
  const uint64_t b = head[1] * 0x9E3779B97F4A7C15u + size;
  return mix(head[0] ^ ((b << 23) | (b >> 41)));
}

uint64_t hash_bytes(const char *data, size_t size);

// `limit` is the end of readable memory: away from it 16 bytes are read at once.
inline WordKey make_key(const char *data, size_t size, const char *limit) {
  WordKey key{{0, 0}, 0, data, static_cast<uint32_t>(size)};
  if (size > kInline) {
    key.head[0] = hash_bytes(data, size);
    std::memcpy(&key.head[1], data + size - 8, 8);
  } else {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (limit - data >= 16) {
      std::memcpy(key.head, data, 16);
      if (size <= 8) {
        key.head[0] &= ~uint64_t{0} >> (64 - 8 * size);  // size is at least 1
        key.head[1] = 0;
      } else {
        key.head[1] &= ~uint64_t{0} >> (128 - 8 * size);
      }
    } else
#endif
      std::memcpy(key.head, data, size);
  }
  key.hash = hash_head(key.head, key.size);
  return key;
}

class WordTable {
 public:
  struct Slot {
    uint64_t head[2];
    uint64_t value;
    uint32_t size;  // 0 marks an empty slot
    uint32_t index;  // of the bytes of a long word
  };

  explicit WordTable(size_t expected = 1024);

  size_t size() const { return used_; }

  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }

  const Slot *find(const WordKey &key) const {
    for (size_t i = key.hash & mask_;; i = (i + 1) & mask_) {
      const Slot &slot = slots_[i];
      if (slot.size == 0) return nullptr;
      if (equals(slot, key)) return &slot;
    }
  }

  // The value of the word, 0 when it is new.
  uint64_t &operator[](const WordKey &key) {
    for (size_t i = key.hash & mask_;; i = (i + 1) & mask_) {
      Slot &slot = slots_[i];
      if (slot.size == 0) return insert(key);
      if (equals(slot, key)) return slot.value;
    }
  }

  std::string_view word(const Slot &slot) const {
    return slot.size > kInline ? std::string_view(long_words_[slot.index])
                               : std::string_view(reinterpret_cast<const char *>(slot.head), slot.size);
  }

  template <class F>
  void each(F &&visit) const {
    for (const Slot &slot : slots_)
      if (slot.size) visit(slot);
  }

 private:
  bool equals(const Slot &slot, const WordKey &key) const {
    return slot.head[0] == key.head[0] && slot.head[1] == key.head[1] && slot.size == key.size &&
           (key.size <= kInline ||
            std::memcmp(long_words_[slot.index].data(), key.data, key.size) == 0);
  }
  uint64_t &insert(const WordKey &key);
  void grow();

  std::vector<Slot> slots_;
  std::deque<std::string> long_words_;
  size_t mask_;
  size_t used_ = 0;
};

}  // namespace blackout
