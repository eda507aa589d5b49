// Random numbers as pure functions of seed and place: splitmix64, the same on every machine and in
// blackout.ops.reference. Everything here has internal linkage, because the engine's kernels are
// compiled once for each instruction set and the linker must not mix their copies.
#pragma once
#include <cstdint>

namespace blackout {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // 2^64 divided by the golden ratio

// The finaliser of splitmix64: every bit of x has a say in every bit of the result.
static inline uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace blackout
