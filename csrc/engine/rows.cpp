#include "engine/rows.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace blackout {
namespace {

constexpr int kMostDigitBits = 11;

struct Occurrence {
  u64 row;
  int32_t place;
};

int bits_of(u64 number) {
  int bits = 0;
  while (bits < 64 && number >> bits) ++bits;
  return bits;
}

// Bits of a digit with the least work: every pass walks through the rows and through the digits.
int digit_bits(int bits, i64 n) {
  int best = kMostDigitBits;
  i64 least = std::numeric_limits<i64>::max();
  for (int each = 4; each <= kMostDigitBits; ++each) {
    const i64 work = (bits + each - 1) / each * (2 * n + (i64{1} << each));
    if (work >= least) continue;
    least = work;
    best = each;
  }
  return best;
}

void sort_by_digit(const std::vector<Occurrence> &from, std::vector<Occurrence> &to, int shift,
                   int bits) {
  const size_t digits = size_t{1} << bits;
  std::array<int32_t, (size_t{1} << kMostDigitBits) + 1> start;
  std::fill_n(start.begin(), digits + 1, 0);
  for (const Occurrence &o : from) ++start[((o.row >> shift) & (digits - 1)) + 1];
  for (size_t d = 0; d < digits; ++d) start[d + 1] += start[d];
  for (const Occurrence &o : from)
    to[static_cast<size_t>(start[(o.row >> shift) & (digits - 1)]++)] = o;
}

}  // namespace

i64 collect_rows(const i64 *gradient_rows, i64 n, i64 *rows, i64 *start, int32_t *order) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max())
    throw std::length_error("more than 2,147,483,647 row gradients in one block");
  const auto out_of_order = std::adjacent_find(gradient_rows, gradient_rows + n, std::greater_equal<>());
  if (out_of_order == gradient_rows + n) {  // each row once already, in their order
    std::copy_n(gradient_rows, n, rows);
    std::iota(start, start + n + 1, i64{0});
    std::iota(order, order + n, 0);
    return n;
  }
  std::vector<Occurrence> sorted(static_cast<size_t>(n)), other(static_cast<size_t>(n));
  u64 largest = 0;
  for (i64 i = 0; i < n; ++i) {
    const u64 row = static_cast<u64>(gradient_rows[i]);
    sorted[static_cast<size_t>(i)] = {row, static_cast<int32_t>(i)};
    largest = std::max(largest, row);
  }
  const int bits = bits_of(largest), each = digit_bits(bits, n);
  for (int shift = 0; shift < bits; shift += each) {
    sort_by_digit(sorted, other, shift, each);
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
