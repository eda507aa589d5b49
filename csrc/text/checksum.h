// XXH64 (seed 0) of a stream of bytes: the checksum of shards and of the texts they come from.
#pragma once
#include <cstddef>
#include <cstdint>

namespace blackout {

class Checksum {
 public:
  Checksum();
  void update(const uint8_t *data, size_t size);
  uint64_t value() const;

 private:
  uint64_t lanes_[4];
  uint8_t pending_[32];  // a stripe that is not complete yet
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

}  // namespace blackout
