// UTF-8: is a word valid, and what does it become when each fault is replaced by U+FFFD?
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace blackout {

// Length of the valid sequence that starts at p (1 to 4), or 0 when there is none; `bad` is then
// the length of the longest prefix that could have begun a sequence (at least 1), which is what
// one U+FFFD stands for. NUL is a fault too: no text contains it.
size_t utf8_sequence(const uint8_t *p, const uint8_t *end, size_t &bad);

// Position of the first fault in [p, end), or end.
const uint8_t *utf8_fault(const uint8_t *p, const uint8_t *end);

// The same bytes with every fault replaced by U+FFFD.
void utf8_replace(const uint8_t *p, const uint8_t *end, std::string &out);

}  // namespace blackout
