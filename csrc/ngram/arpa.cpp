#include "ngram/arpa.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ngram/number.h"
#include "text/utf8.h"

namespace blackout::ngram {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool parse_count(std::string_view text, uint64_t &value) {
  text = trim(text);
  if (text.empty() || text.size() > 18) return false;
  value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

std::string quote(std::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char &c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  return "'" + shown + (text.size() > 40 ? "...'" : "'");
}

std::string grams(uint64_t n, size_t order) {
  return std::to_string(n) + " " + std::to_string(order) + "-gram" + (n == 1 ? "" : "s");
}

std::string section_name(size_t order) { return "\\" + std::to_string(order) + "-grams:"; }

}  // namespace

void ArpaReader::fail(const std::string &what) const {
  throw std::invalid_argument("line " + std::to_string(line_) + ": " + what);
}

size_t ArpaReader::feed(const uint8_t *data, size_t size, bool last) {
  const char *p = reinterpret_cast<const char *>(data), *const end = p + size;
  while (p < end) {
    const void *newline = std::memchr(p, '\n', static_cast<size_t>(end - p));
    const char *stop = newline ? static_cast<const char *>(newline) : end;
    const std::string_view rest(p, static_cast<size_t>(stop - p));
    if (pending_.size() + rest.size() > kMaxLine) {
      ++line_;
      fail("longer than any n-gram; this is not an ARPA file");
    }
    if (!newline) {
      pending_.append(rest);
      break;
    }
    if (pending_.empty()) {
      line(rest);
    } else {
      pending_.append(rest);
      line(pending_);
      pending_.clear();
    }
    p = stop + 1;
  }
  if (last) {
    if (!pending_.empty()) line(pending_);
    pending_.clear();
    finish();
  }
  return size;
}

void ArpaReader::line(std::string_view raw) {
  ++line_;
  const std::string_view text = trim(raw);
  if (part_ == Part::preamble) {
    if (text == "\\data\\") part_ = Part::counts;
  } else if (part_ == Part::done || text.empty()) {
    return;
  } else if (text[0] == '\\') {
    heading(text);
  } else if (part_ == Part::counts) {
    count_line(text);
  } else {
    entry(text);
  }
}

void ArpaReader::count_line(std::string_view text) {
  const size_t equals = text.find('=');
  uint64_t order, count;
  if (text.substr(0, 5) != "ngram" || equals == std::string_view::npos ||
      !parse_count(text.substr(5, equals - 5), order) ||
      !parse_count(text.substr(equals + 1), count))
    fail("expected 'ngram N=count', found " + quote(text));
  if (order != announced_.size() + 1)
    fail("expected 'ngram " + std::to_string(announced_.size() + 1) + "=', found " + quote(text));
  if (order > kMaxModelOrder)
    fail("order " + std::to_string(order) + " is above the highest that can be read, " +
         std::to_string(kMaxModelOrder));
  announced_.push_back(count);
}

void ArpaReader::heading(std::string_view text) {
  if (part_ == Part::section) end_section();
  const size_t next = section_ + 1;
  if (text == "\\end\\") {
    if (next <= announced_.size() || announced_.empty())
      fail("\\end\\ before the section " + section_name(next));
    part_ = Part::done;
  } else if (next <= announced_.size() && text == section_name(next)) {
    begin_section(next);
  } else {
    fail("expected " + (next <= announced_.size() ? section_name(next) : "\\end\\") + ", found " +
         quote(text));
  }
}

void ArpaReader::begin_section(size_t order) {
  part_ = Part::section;
  section_ = order;
  found_ = 0;
  if (order > 1 && data_.words() == 0) fail("no 1-grams");
  if (order == 1)
    data_.nodes.resize(1);
  else
    levels_.push_back(make_level(order, announced_[order - 1]));
}

void ArpaReader::end_section() {
  const uint64_t announced = announced_[section_ - 1];
  if (found_ != announced)
    fail("the section " + section_name(section_) + " ends after " + grams(found_, section_) +
         ", but " + std::to_string(announced) + " were announced");
}

void ArpaReader::entry(std::string_view text) {
  std::array<std::string_view, kMaxModelOrder + 3> fields;
  size_t n = 0;
  for (size_t i = 0; i < text.size() && n < fields.size();) {
    size_t j = i;
    while (j < text.size() && !is_blank(text[j])) ++j;
    fields[n++] = text.substr(i, j - i);
    while (j < text.size() && is_blank(text[j])) ++j;
    i = j;
  }
  if (n != section_ + 1 && n != section_ + 2)
    fail("expected a number, " + std::to_string(section_) +
         (section_ == 1 ? " word" : " words") + " and perhaps a number, found " + quote(text));
  double prob, backoff = 0;
  if (!parse_number(fields[0], prob)) fail(quote(fields[0]) + " is not a number");
  if (n == section_ + 2 && !parse_number(fields[n - 1], backoff))
    fail(quote(fields[n - 1]) + " is not a number");
  for (const double number : {prob, backoff})
    if (std::fabs(number) > kMostLog10) fail("a number beyond 1e6 is no log10 of anything");
  if (prob > kRounding) fail("log10 probability " + std::string(fields[0]) + " is above 0");
  if (section_ == announced_.size() && backoff != 0)
    fail("a back-off weight on an n-gram of the highest order");
  if (++found_ > announced_[section_ - 1])
    fail("more than the " + grams(announced_[section_ - 1], section_) + " that were announced");
  const float p = static_cast<float>(std::min(prob, 0.0)), b = static_cast<float>(backoff);
  if (section_ == 1) return unigram(fields[1], p, b);

  find_words(fields.data() + 1, text.data() + text.size());
  levels_.back()->add(words_.data(), p, b);
}

// Files are sorted one way or another, so a word is often the one of the line above. The look-ups
// of the others wait for memory together.
void ArpaReader::find_words(const std::string_view *fields, const char *limit) {
  std::array<WordKey, kMaxModelOrder> keys;
  std::array<size_t, kMaxModelOrder> places;
  size_t n = 0;
  for (size_t i = 0; i < section_; ++i) {
    if (fields[i] == data_.word(words_[i])) continue;
    keys[n] = make_key(fields[i].data(), fields[i].size(), limit);
    table_.prefetch(keys[n].hash);
    places[n++] = i;
  }
  for (size_t k = 0; k < n; ++k) {
    const WordTable::Slot *slot = table_.find(keys[k]);
    const size_t i = places[k];
    if (!slot) fail("the word " + quote(fields[i]) + " is not among the 1-grams");
    words_[i] = static_cast<Id>(slot->value - 1);
  }
}

void ArpaReader::unigram(std::string_view word, float prob, float backoff) {
  const uint8_t *begin = reinterpret_cast<const uint8_t *>(word.data());
  if (utf8_fault(begin, begin + word.size()) != begin + word.size()) fail("invalid UTF-8");
  const Id id = data_.add_word(word);
  if (id == kNone) fail("the 1-gram " + quote(word) + " stands there twice");
  table_[make_key(word.data(), word.size(), word.data() + word.size())] = uint64_t{id} + 1;
  data_.nodes[0].push_back({id, prob, backoff, 0});
}

void ArpaReader::finish() {
  if (part_ == Part::preamble) fail("no \\data\\ line; this is not an ARPA file");
  if (part_ != Part::done) fail("the file ends before \\end\\");
  if (data_.words() == 0) fail("no 1-grams");
}

ModelData ArpaReader::take() {
  // A model of a closed vocabulary gives unknown words no probability at all.
  if (data_.unk == kNone)
    data_.nodes[0].push_back({data_.add_word("<unk>"), kLogZero, 0.0f, 0});
  if (data_.eos == kNone)
    data_.nodes[0].push_back({data_.add_word("</s>"), kLogZero, 0.0f, 0});
  build_trie(std::move(levels_), data_);
  return std::move(data_);
}

}  // namespace blackout::ngram
