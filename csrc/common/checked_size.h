// Sizes that come from a file or a setting: a product or a sum that wraps round looks small, and
// whatever is measured by it is then read or written far beyond its end. Here it is an error.
#pragma once
#include <cstddef>
#include <stdexcept>

namespace blackout {

inline size_t checked_multiply(size_t a, size_t b) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product))
    throw std::length_error("a size is beyond all memory");
  return product;
}

inline size_t checked_add(size_t a, size_t b) {
  size_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw std::length_error("a size is beyond all memory");
  return sum;
}

// The next multiple of `unit` that is not below `bytes`.
inline size_t checked_round_up(size_t bytes, size_t unit) {
  return checked_add(bytes, unit - 1) / unit * unit;
}

}  // namespace blackout
