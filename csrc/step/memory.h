// Arrays that are made once and used for every block.
#pragma once

#include <utility>

#include "common/checked_size.h"
#include "engine/buffers.h"
#include "engine/kernels.h"

namespace blackout {

template <class T> class Memory {
 public:
  Memory() = default;
  explicit Memory(i64 n)
      : buffer_(take_buffer(checked_multiply(static_cast<size_t>(n), sizeof(T)))) {}
  Memory(Memory &&other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  Memory &operator=(Memory &&other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~Memory() {
    if (buffer_) give_back_buffer(buffer_);
  }

  T *data() const { return buffer_ ? static_cast<T *>(buffer_->data) : nullptr; }
  operator T *() const { return data(); }

 private:
  Buffer *buffer_ = nullptr;
};

// An array of numbers in one of the two formats.
class NumberMemory {
 public:
  NumberMemory() = default;
  NumberMemory(i64 n, bool half) : bytes_(n * (half ? 2 : 4)), half_(half) {}

  operator Numbers() const { return {bytes_.data(), half_}; }
  Numbers at(i64 place) const { return {bytes_.data() + place * (half_ ? 2 : 4), half_}; }
  float *floats() const { return reinterpret_cast<float *>(bytes_.data()); }

 private:
  Memory<char> bytes_;
  bool half_ = false;
};

}  // namespace blackout
