#include "text/counter.h"

namespace blackout {

namespace {

void add(WordTable &to, const WordTable &from) {
  from.each([&](const WordTable::Slot &slot) {
    const std::string_view word = from.word(slot);
    to[make_key(word.data(), word.size(), word.data() + word.size())] += slot.value;
  });
}

CountedWords sorted(const WordTable &table) {
  std::vector<const WordTable::Slot *> slots;
  slots.reserve(table.size());
  size_t bytes = 0;
  table.each([&](const WordTable::Slot &slot) {
    slots.push_back(&slot);
    bytes += slot.size + 1;
  });
  std::sort(slots.begin(), slots.end(), [&](const auto *a, const auto *b) {
    return a->value != b->value ? a->value > b->value : table.word(*a) < table.word(*b);
  });
  CountedWords out;
  out.words.reserve(bytes);
  out.ends.reserve(slots.size());
  out.counts.reserve(slots.size());
  for (const auto *slot : slots) {
    out.words += table.word(*slot);
    out.ends.push_back(out.words.size());
    out.counts.push_back(slot->value);
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
