#include "engine/rows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

namespace blackout {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;

struct Occurrence {
  u64 row;
  int32_t place;
};

void sort_by_digit(const std::vector<Occurrence> &from, std::vector<Occurrence> &to, int shift) {
  std::array<size_t, kDigits + 1> start{};
  for (const Occurrence &o : from) ++start[((o.row >> shift) & (kDigits - 1)) + 1];
  for (size_t d = 0; d < kDigits; ++d) start[d + 1] += start[d];
  for (const Occurrence &o : from) to[start[(o.row >> shift) & (kDigits - 1)]++] = o;
}

}  // namespace

i64 collect_rows(const i64 *gradient_rows, i64 n, i64 *rows, i64 *start, int32_t *order) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max())
    throw std::length_error("more than 2,147,483,647 row gradients in one block");
  std::vector<Occurrence> sorted(static_cast<size_t>(n)), other(static_cast<size_t>(n));
  u64 largest = 0;
  for (i64 i = 0; i < n; ++i) {
    const u64 row = static_cast<u64>(gradient_rows[i]);
    sorted[static_cast<size_t>(i)] = {row, static_cast<int32_t>(i)};
    largest = std::max(largest, row);
  }
  for (int shift = 0; shift < 64 && (largest >> shift) != 0; shift += kDigitBits) {
    sort_by_digit(sorted, other, shift);
    sorted.swap(other);
  }
  i64 distinct = 0;
  for (i64 i = 0; i < n; ++i) {
    const Occurrence &o = sorted[static_cast<size_t>(i)];
    order[i] = o.place;
    if (i == 0 || static_cast<i64>(o.row) != rows[distinct - 1]) {
      rows[distinct] = static_cast<i64>(o.row);
      start[distinct++] = i;
    }
  }
  start[distinct] = n;
  return distinct;
}

i64 first_row(const i64 *start, i64 distinct, int part, int parts) {
  const i64 occurrences = start[distinct] * part / parts;
  return std::lower_bound(start, start + distinct, occurrences) - start;
}

}  // namespace blackout
