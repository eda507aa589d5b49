#include "ngram/number.h"

#include <cmath>
#include <cstdint>

namespace blackout::ngram {
namespace {

// Reads digits at i; those beyond the 18th do not change a double that matters here.
struct Digits {
  uint64_t mantissa = 0;
  int kept = 0, dropped = 0, seen = 0;

  void read(std::string_view text, size_t &i) {
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i, ++seen) {
      if (kept < 18) {
        mantissa = mantissa * 10 + static_cast<uint64_t>(text[i] - '0');
        kept += mantissa > 0;
      } else {
        ++dropped;
      }
    }
  }
};

double power_of_ten(int exponent) {
  static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  return exponent <= 22 ? exact[exponent] : std::pow(10.0, exponent);
}

}  // namespace

bool parse_number(std::string_view text, double &value) {
  if (text == "-inf" || text == "-Inf" || text == "-INF") {
    value = -99.0;
    return true;
  }
  size_t i = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) ++i;
  Digits digits;
  digits.read(text, i);
  int exponent = digits.dropped;
  if (i < text.size() && text[i] == '.') {
    const int before = digits.seen, dropped = digits.dropped;
    digits.read(text, ++i);
    exponent -= digits.seen - before - (digits.dropped - dropped);
  }
  if (digits.seen == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    const bool down = i < text.size() && text[i] == '-';
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    Digits power;
    power.read(text, i);
    if (power.seen == 0 || power.mantissa > 9999) return false;
    exponent += down ? -static_cast<int>(power.mantissa) : static_cast<int>(power.mantissa);
  }
  if (i != text.size()) return false;
  value = static_cast<double>(digits.mantissa);
  value = exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(exponent);
  if (negative) value = -value;
  return std::isfinite(value);
}

}  // namespace blackout::ngram
