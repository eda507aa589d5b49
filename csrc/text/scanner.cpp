#include "text/scanner.h"

namespace blackout {

void raise_fault(const Position &at, uint64_t line) {
  std::string what = "line " + std::to_string(line) + ": ";
  switch (at.fault) {
    case Fault::invalid:
      what += "invalid UTF-8 (byte " + at.detail + "); --replace-invalid reads it as U+FFFD";
      break;
    case Fault::nul:
      what += "NUL byte, so this is not text; --replace-invalid reads it as U+FFFD";
      break;
    case Fault::marker:
      what += "literal " + at.detail + " inside a line; --skip-markers drops it";
      break;
    default:
      what += "a word of more than " + std::to_string(kMaxWord) + " bytes";
  }
  throw std::invalid_argument(what);
}

}  // namespace blackout
