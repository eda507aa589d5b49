#include "ngram/discount.h"

#include <cmath>

namespace blackout::ngram {

std::string closed_form(const Statistics &statistics, Discount &discount) {
  const std::array<uint64_t, 5> &n = statistics.with_count;
  for (size_t j = 1; j <= 3; ++j)
    if (n[j] == 0) return "none has adjusted count " + std::to_string(j);
  const double n1 = static_cast<double>(n[1]);
  const double y = n1 / (n1 + 2.0 * static_cast<double>(n[2]));
  for (size_t j = 1; j <= 3; ++j) {
    const double count = static_cast<double>(j);
    double d = count - (count + 1) * y * static_cast<double>(n[j + 1]) / static_cast<double>(n[j]);
    if (std::fabs(d) < 1e-9) d = 0;  // rounding must not decide whether 0 is in range
    if (d < 0 || d > count)
      return "the discount for adjusted count " + std::to_string(j) + " would be " +
             std::to_string(d);
    discount.amount[j] = d;
  }
  return "";
}

}  // namespace blackout::ngram
