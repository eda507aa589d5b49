// Bytes of text to words and line ends: UTF-8, one sentence a line.
//
// A text arrives in buffers. Each buffer is scanned up to its last white space, cut at line ends
// into one piece for each thread; the unfinished word behind it comes again at the front of the
// next buffer. So memory is bounded whatever the length of a line, and the result does not
// depend on how the text was cut.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/threads.h"
#include "text/utf8.h"

namespace blackout {

constexpr size_t kMaxWord = 64 * 1024;  // bytes; anything longer is not a word but a mistake

struct TextOptions {
  bool keep_empty = false;
  bool skip_markers = false;
  bool replace_invalid = false;
};

enum class Fault { none, invalid, nul, marker, too_long };

enum ByteClass : uint8_t { kPlain = 0, kHigh = 1, kNul = 2, kSpace = 4, kNewline = 8 };

// Space, tab, vertical tab, form feed and carriage return separate words; nothing else does, so
// a no-break space or a line separator of Unicode is part of a word.
constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (size_t b = 0x80; b < 256; ++b) classes[b] = kHigh;
  classes[0] = kNul;
  classes[' '] = classes['\t'] = classes['\v'] = classes['\f'] = classes['\r'] = kSpace;
  classes['\n'] = kNewline;
  return classes;
}
inline constexpr std::array<uint8_t, 256> kClasses = make_classes();

inline bool is_separator(uint8_t b) { return kClasses[b] & (kSpace | kNewline); }

// What must be remembered at a cut inside a line, and what is found so far.
struct Position {
  uint64_t newlines = 0;
  bool line_has_bytes = false;  // something stands on the current line, if only white space
  bool line_has_words = false;
  Fault fault = Fault::none;
  std::string detail;
};

// Scans [p, end), which ends between words, into a sink with
//   void word(const char *data, size_t size, const char *limit, bool lasting)
//   void line_end()                    called for lines that are sentences
// `lasting` is false when the bytes are gone after the call.
template <class Sink>
class Scanner {
 public:
  Scanner(const TextOptions &options, Sink &sink) : options_(options), sink_(sink) {}

  void scan(const uint8_t *p, const uint8_t *end, Position &at) {
    while (p < end) {
      uint8_t kind = kClasses[*p];
      if (kind & kNewline) {
        end_line(at);
        ++at.newlines;
        at.line_has_bytes = false;
        ++p;
      } else if (kind & kSpace) {
        at.line_has_bytes = true;
        ++p;
      } else {
        const uint8_t *start = p;
        uint8_t kinds = 0;
        do {
          kinds |= kind;
          ++p;
        } while (p < end && !((kind = kClasses[*p]) & (kSpace | kNewline)));
        at.line_has_bytes = true;
        if (!word(start, p, end, kinds, at)) return;
      }
    }
  }

  // The text is over: its last line may lack the line end.
  void finish(Position &at) {
    if (at.line_has_bytes) end_line(at);
    at.line_has_bytes = false;
  }

 private:
  void end_line(Position &at) {
    if (at.line_has_words || options_.keep_empty) sink_.line_end();
    at.line_has_words = false;
  }

  bool word(const uint8_t *p, const uint8_t *end, const uint8_t *limit, uint8_t kinds, Position &at) {
    const size_t size = static_cast<size_t>(end - p);
    if (size > kMaxWord) return fail(at, Fault::too_long);
    if (kinds != kPlain) {
      const uint8_t *bad = utf8_fault(p, end);
      if (bad != end) {
        if (!options_.replace_invalid) return fail_byte(at, *bad);
        utf8_replace(p, end, scratch_);
        at.line_has_words = true;
        sink_.word(scratch_.data(), scratch_.size(), scratch_.data() + scratch_.size(), false);
        return true;
      }
    }
    const char *text = reinterpret_cast<const char *>(p);
    if (*p == '<' && is_marker(text, size)) {
      if (options_.skip_markers) return true;
      at.detail.assign(text, size);
      return fail(at, Fault::marker);
    }
    at.line_has_words = true;
    sink_.word(text, size, reinterpret_cast<const char *>(limit), true);
    return true;
  }

  static bool is_marker(const char *p, size_t size) {
    return (size == 3 && p[1] == 's' && p[2] == '>') ||
           (size == 4 && p[1] == '/' && p[2] == 's' && p[3] == '>');
  }

  static bool fail(Position &at, Fault fault) {
    at.fault = fault;
    return false;
  }

  static bool fail_byte(Position &at, uint8_t byte) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02x", byte);
    at.detail = hex;
    return fail(at, byte == 0 ? Fault::nul : Fault::invalid);
  }

  const TextOptions &options_;
  Sink &sink_;
  std::string scratch_;
};

// Raises what a person is told about a fault; the caller knows the file.
[[noreturn]] void raise_fault(const Position &at, uint64_t line);

// The part every reader of text shares: cutting buffers, threads, line numbers, faults.
// Each thread has a sink of its own; pieces are handed out in order, sink i before sink i + 1.
template <class Sink>
class ParallelScanner {
 public:
  ParallelScanner(const TextOptions &options, std::vector<Sink> &sinks)
      : options_(options), sinks_(sinks) {}

  // Reads from the buffer; gives the number of bytes used. With `last`, all of them.
  size_t feed(const uint8_t *data, size_t size, bool last) {
    const uint8_t *end = data + size;
    if (!last) {
      while (end > data && !is_separator(end[-1])) --end;
      if (static_cast<size_t>(data + size - end) > kMaxWord) too_long_ = true;
    }
    scan_pieces(cut(data, end), last);
    if (too_long_) {
      open_.fault = Fault::too_long;
      raise_fault(open_, lines_ + 1);
    }
    return static_cast<size_t>(end - data);
  }

  uint64_t lines() const { return lines_; }

 private:
  // Ends of at most one piece a thread, each but the last behind a line end.
  std::vector<const uint8_t *> cut(const uint8_t *data, const uint8_t *end) const {
    std::vector<const uint8_t *> cuts{data};
    const size_t n = sinks_.size(), size = static_cast<size_t>(end - data);
    for (size_t i = 1; i < n; ++i) {
      const uint8_t *p = std::find(std::max(cuts.back(), data + size * i / n), end, '\n');
      if (p == end) break;
      cuts.push_back(p + 1);
    }
    cuts.push_back(end);
    return cuts;
  }

  void scan_pieces(const std::vector<const uint8_t *> &cuts, bool last) {
    const size_t n = cuts.size() - 1;
    std::vector<Position> at(n);
    at[0] = open_;
    const std::vector<std::exception_ptr> raised = try_pieces(n, [&](size_t i) {
      Scanner<Sink> scanner(options_, sinks_[i]);
      scanner.scan(cuts[i], cuts[i + 1], at[i]);
      if (last && i + 1 == n && at[i].fault == Fault::none) scanner.finish(at[i]);
      sinks_[i].flush();
    });
    for (size_t i = 0; i < n; ++i) {
      if (raised[i]) std::rethrow_exception(raised[i]);
      if (at[i].fault != Fault::none) raise_fault(at[i], lines_ + at[i].newlines + 1);
      lines_ += at[i].newlines;
    }
    open_ = at.back();
    open_.newlines = 0;
  }

  TextOptions options_;
  std::vector<Sink> &sinks_;
  Position open_;
  uint64_t lines_ = 0;
  bool too_long_ = false;
};

}  // namespace blackout
