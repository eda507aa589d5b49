#include "text/counter.h"

namespace blackout {

namespace {

void add(WordTable &to, const WordTable &from) {
  from.each([&](const WordTable::Slot &slot) {
    const std::string_view word = from.word(slot);
    to[make_key(word.data(), word.size(), word.data() + word.size())] += slot.value;
  });
}

// Sixteen bytes of a word as two numbers that compare like the bytes: settles nearly every tie
// of two counts without a look at the words themselves.
struct Ranked {
  uint64_t count, first, second;
  const WordTable::Slot *slot;
};

uint64_t big_endian(std::string_view bytes, size_t from) {
  uint64_t x = 0;
  for (size_t i = from; i < from + 8; ++i)
    x = x << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
  return x;
}

CountedWords sorted(const WordTable &table) {
  std::vector<Ranked> ranked;
  ranked.reserve(table.size());
  size_t bytes = 0;
  table.each([&](const WordTable::Slot &slot) {
    const std::string_view word = table.word(slot);
    ranked.push_back({slot.value, big_endian(word, 0), big_endian(word, 8), &slot});
    bytes += word.size() + 1;
  });
  std::sort(ranked.begin(), ranked.end(), [&](const Ranked &a, const Ranked &b) {
    if (a.count != b.count) return a.count > b.count;
    if (a.first != b.first) return a.first < b.first;
    if (a.second != b.second) return a.second < b.second;
    return table.word(*a.slot) < table.word(*b.slot);
  });
  CountedWords out;
  out.words.reserve(bytes);
  out.ends.reserve(ranked.size());
  out.counts.reserve(ranked.size());
  for (const Ranked &entry : ranked) {
    out.words += table.word(*entry.slot);
    out.ends.push_back(out.words.size());
    out.counts.push_back(entry.count);
    out.words += '\n';
  }
  return out;
}

}  // namespace

WordCounter::WordCounter(TextOptions options, size_t threads) : options_(options), sinks_(threads) {
  next_file();
}

void WordCounter::next_file() { scanner_.emplace(options_, sinks_); }

CountedWords WordCounter::result() {
  for (size_t i = 1; i < sinks_.size(); ++i) {
    add(sinks_[0].table, sinks_[i].table);
    sinks_[0].sentences += sinks_[i].sentences;
    sinks_[i] = CountSink();
  }
  CountedWords out = sorted(sinks_[0].table);
  out.sentences = sinks_[0].sentences;
  return out;
}

}  // namespace blackout
