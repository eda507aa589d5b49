#include "ngram/model.h"

#include <algorithm>

namespace blackout::ngram {
namespace {

// Halves the range without branches that depend on the data, down to one cache line.
template <class Entry>
uint32_t search(const Entry *entries, uint32_t begin, uint32_t end, Id word) {
  const Entry *base = entries + begin;
  uint32_t n = end - begin;
  while (n > 8) {
    const uint32_t half = n / 2;
    base = base[half].word <= word ? base + half : base;
    n -= half;
  }
  for (const Entry *stop = base + n; base != stop; ++base)
    if (base->word == word) return static_cast<uint32_t>(base - entries);
  return kNone;
}

}  // namespace

// FNV-1a with a final mix: part of the file format, so it never changes.
uint64_t hash_word(std::string_view word) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (char c : word) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return hash ^ (hash >> 32);
}

Id Model::find(std::string_view wanted) const {
  for (uint64_t i = hash_word(wanted) & slot_mask;; i = (i + 1) & slot_mask) {
    const Id id = slots[i];
    if (id == kNone || word(id) == wanted) return id;
  }
}

State Model::begin() const {
  State state;
  if (bos != kNone && order > 1) {
    state.context[0] = bos;
    state.length = 1;
  }
  return state;
}

uint32_t Model::child(size_t n, uint32_t parent, Id word) const {
  const Node &node = nodes[n - 1][parent];
  const uint32_t end = (&node)[1].first;
  if (node.first == end) return kNone;
  return n + 1 == order ? search(leaves, node.first, end, word)
                        : search(nodes[n], node.first, end, word);
}

float Model::score(State &state, Id word) const {
  Found found;
  found[0] = word;
  for (size_t n = 1; n <= state.length; ++n) {
    const uint32_t context = state.context[n - 1];
    found[n] = context == kNone ? kNone : child(n, context, word);
  }
  return score_found(state, found);
}

float Model::score_found(State &state, const Found &found) const {
  size_t longest = state.length;
  while (found[longest] == kNone) --longest;
  float prob = longest + 1 == order && order > 1 ? leaves[found[longest]].prob
                                                 : nodes[longest][found[longest]].prob;
  for (size_t n = longest + 1; n <= state.length; ++n)
    if (state.context[n - 1] != kNone) prob += nodes[n - 1][state.context[n - 1]].backoff;

  // What can still be a context: everything up to the longest n-gram below the highest order.
  const size_t length = std::min(longest + 1, order - 1);
  std::copy(found.begin(), found.begin() + length, state.context.begin());
  state.length = length;
  return checked_log10(prob);
}

}  // namespace blackout::ngram
