#include "text/utf8.h"

namespace blackout {

namespace {

struct Lead {
  uint8_t length;  // of the whole sequence; 0 when no sequence starts with this byte
  uint8_t low, high;  // what the second byte may be
};

// The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
Lead lead_of(uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

size_t utf8_sequence(const uint8_t *p, const uint8_t *end, size_t &bad) {
  bad = 1;
  if (*p != 0 && *p < 0x80) return 1;
  const Lead lead = lead_of(*p);
  if (lead.length == 0) return 0;
  uint8_t low = lead.low, high = lead.high;
  for (size_t i = 1; i < lead.length; ++i) {
    if (p + i == end || p[i] < low || p[i] > high) {
      bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return lead.length;
}

const uint8_t *utf8_fault(const uint8_t *p, const uint8_t *end) {
  size_t bad;
  while (p < end) {
    const size_t n = utf8_sequence(p, end, bad);
    if (n == 0) return p;
    p += n;
  }
  return end;
}

void utf8_replace(const uint8_t *p, const uint8_t *end, std::string &out) {
  out.clear();
  size_t bad;
  while (p < end) {
    const size_t n = utf8_sequence(p, end, bad);
    if (n == 0) {
      out.append("\xEF\xBF\xBD");
      p += bad;
    } else {
      out.append(reinterpret_cast<const char *>(p), n);
      p += n;
    }
  }
}

}  // namespace blackout
