#include "text/streams.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "common/random.h"
#include "text/encoder.h"

namespace blackout {

namespace {

struct Columns {
  int64_t *inputs, *targets;
  bool *mask;
  uint64_t batch, bptt;
};

// Writes tokens [at, end) down a column from `row` on, as far as there are rows; gives the
// first row that is still free. Sentences end in </s>, so that the token before a sentence's
// first, in the text, is the </s> that must be its input.
uint64_t write(const Columns &to, uint64_t stream, uint64_t row, StreamFiller::Cursor &from,
               const uint32_t *tokens) {
  for (; row < to.bptt && from.at < from.end; ++row, ++from.at) {
    const uint64_t i = row * to.batch + stream;
    to.inputs[i] = from.at ? tokens[from.at - 1] : kEos;
    to.targets[i] = tokens[from.at];
    to.mask[i] = true;
  }
  return row;
}

uint64_t sentence_at(const TokenText &text, uint64_t i) { return text.order ? text.order[i] : i; }

}  // namespace

StreamFiller::StreamFiller(TokenText text, uint64_t batch, uint64_t bptt)
    : text_(text), batch_(batch), bptt_(bptt) {
  if (batch == 0 || bptt == 0 || (batch | bptt) >> 32)
    throw std::invalid_argument("batch and bptt must be at least 1 and below 2^32");
  cursors.assign(batch, Cursor{0, 0});
  // Everything below trusts the numbers, so that a wrong one must not get this far.
  for (uint64_t i = 0; i < text.sentences; ++i)
    if (text.offsets[i] >= text.offsets[i + 1] || (text.order && text.order[i] >= text.sentences))
      throw std::invalid_argument("sentence " + std::to_string(i) + " is empty or out of place");
  if (text.offsets[0] != 0 || text.offsets[text.sentences] != text.size)
    throw std::invalid_argument("the sentences do not cover the tokens");
}

uint64_t StreamFiller::fill(int64_t *inputs, int64_t *targets, bool *mask) {
  const uint64_t cells = batch_ * bptt_;
  std::fill_n(inputs, cells, int64_t{kEos});
  std::fill_n(targets, cells, int64_t{kEos});
  std::fill_n(mask, cells, false);
  const Columns to{inputs, targets, mask, batch_, bptt_};

  uint64_t words = 0;
  short_.clear();
  for (uint64_t s = 0; s < batch_; ++s) {
    const uint64_t row = write(to, s, 0, cursors[s], text_.tokens);
    words += row;
    if (row < bptt_) short_.push_back(row << 32 | s);  // the order of (length, stream)
  }
  const std::greater<uint64_t> shortest_first;
  std::make_heap(short_.begin(), short_.end(), shortest_first);
  while (!short_.empty() && next_sentence < text_.sentences) {
    std::pop_heap(short_.begin(), short_.end(), shortest_first);
    const uint64_t s = short_.back() & 0xFFFFFFFFu, begin = short_.back() >> 32;
    short_.pop_back();
    const uint64_t sentence = sentence_at(text_, next_sentence++);
    cursors[s] = {text_.offsets[sentence], text_.offsets[sentence + 1]};
    const uint64_t row = write(to, s, begin, cursors[s], text_.tokens);
    words += row - begin;
    if (row < bptt_) {
      short_.push_back(row << 32 | s);
      std::push_heap(short_.begin(), short_.end(), shortest_first);
    }
  }
  return words;
}

uint64_t longest_stream(const TokenText &text, uint64_t batch) {
  std::vector<uint64_t> lengths(batch, 0);  // a heap; which of equal streams grows is all the same
  const std::greater<uint64_t> shortest_first;
  uint64_t longest = 0;
  for (uint64_t i = 0; i < text.sentences; ++i) {
    const uint64_t sentence = sentence_at(text, i);
    std::pop_heap(lengths.begin(), lengths.end(), shortest_first);
    lengths.back() += text.offsets[sentence + 1] - text.offsets[sentence];
    longest = std::max(longest, lengths.back());
    std::push_heap(lengths.begin(), lengths.end(), shortest_first);
  }
  return longest;
}

namespace {

// SplitMix64: the whole state is one counter.
struct Random {
  uint64_t state;
  uint64_t next() { return mix64(state += kGolden); }
  // Uniform below n (n at most 2^32): the high half of a product, redrawn where it would be biased.
  uint64_t below(uint64_t n) {
    uint64_t product = (next() >> 32) * n;
    const uint64_t threshold = (uint64_t{1} << 32) % n;
    while ((product & 0xFFFFFFFFu) < threshold) product = (next() >> 32) * n;
    return product >> 32;
  }
};

}  // namespace

std::vector<uint32_t> shuffled(uint64_t n, uint64_t seed, uint64_t epoch) {
  if (n > std::numeric_limits<uint32_t>::max())
    throw std::invalid_argument("more than 4,294,967,295 sentences cannot be shuffled");
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  Random random{seed};
  random.state = random.next() ^ epoch;  // so that seed 1 epoch 2 is not seed 2 epoch 1
  random.state = random.next();
  for (uint64_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace blackout
