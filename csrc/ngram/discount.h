// Discounts of modified Kneser-Ney: how much is taken from n-grams seen once, twice, more often.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace blackout::ngram {

// Of the n-grams of one order: how many there are, how many stay after pruning, and how many
// have (adjusted) count 1, 2, 3 and 4.
struct Statistics {
  uint64_t total = 0, kept = 0;
  std::array<uint64_t, 5> with_count{};

  void add(uint64_t count, bool pruned) {
    ++total;
    kept += !pruned;
    if (count < with_count.size()) ++with_count[count];
  }
};

struct Discount {
  std::array<double, 4> amount{};  // for counts 0, 1, 2 and 3 or more

  double of(uint32_t count) const { return amount[count < 3 ? count : 3]; }
};

// Chen and Goodman's closed form (their eq. 26): with Y = n1 / (n1 + 2 n2),
// D_j = j - (j + 1) Y n_(j+1) / n_j for j = 1, 2, 3. Gives why it fails in words, or "".
std::string closed_form(const Statistics &statistics, Discount &discount);

}  // namespace blackout::ngram
