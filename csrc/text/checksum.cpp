#include "text/checksum.h"

#include <cstring>

namespace blackout {

namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;

inline uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

// Little-endian whatever the machine; compilers turn the loop into one load.
template <class T>
inline uint64_t load(const uint8_t *p) {
  T x = 0;
  for (size_t i = 0; i < sizeof(T); ++i) x |= static_cast<T>(static_cast<T>(p[i]) << (8 * i));
  return x;
}

inline uint64_t round(uint64_t lane, uint64_t input) {
  return rotate(lane + input * kPrime2, 31) * kPrime1;
}

inline uint64_t merge(uint64_t hash, uint64_t lane) {
  return (hash ^ round(0, lane)) * kPrime1 + kPrime4;
}

}  // namespace

Checksum::Checksum() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void Checksum::update(const uint8_t *data, size_t size) {
  total_ += size;
  if (filled_ + size < 32) {
    if (size) std::memcpy(pending_ + filled_, data, size);
    filled_ += size;
    return;
  }
  uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  auto stripe = [&](const uint8_t *p) {
    a = round(a, load<uint64_t>(p));
    b = round(b, load<uint64_t>(p + 8));
    c = round(c, load<uint64_t>(p + 16));
    d = round(d, load<uint64_t>(p + 24));
  };
  const uint8_t *end = data + size;
  if (filled_) {
    std::memcpy(pending_ + filled_, data, 32 - filled_);
    data += 32 - filled_;
    stripe(pending_);
  }
  for (; end - data >= 32; data += 32) stripe(data);
  filled_ = static_cast<size_t>(end - data);
  if (filled_) std::memcpy(pending_, data, filled_);
  lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
}

uint64_t Checksum::value() const {
  uint64_t hash = kPrime5;
  if (total_ >= 32) {
    hash = rotate(lanes_[0], 1) + rotate(lanes_[1], 7) + rotate(lanes_[2], 12) +
           rotate(lanes_[3], 18);
    for (uint64_t lane : lanes_) hash = merge(hash, lane);
  }
  hash += total_;
  const uint8_t *p = pending_, *end = pending_ + filled_;
  for (; end - p >= 8; p += 8)
    hash = rotate(hash ^ round(0, load<uint64_t>(p)), 27) * kPrime1 + kPrime4;
  for (; end - p >= 4; p += 4)
    hash = rotate(hash ^ load<uint32_t>(p) * kPrime1, 23) * kPrime2 + kPrime3;
  for (; p < end; ++p) hash = rotate(hash ^ *p * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace blackout
