// A back-off model as a trie of sorted arrays, and the queries on it.
//
// Level n holds the n-grams: children of one (n-1)-gram lie together, sorted by their last word,
// so a longer n-gram is found by a search in a short range. The arrays are the same in memory
// and in a file; a file is mapped and used as it is.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace blackout::ngram {

using Id = uint32_t;  // of a word: its place among the unigrams
constexpr size_t kMaxModelOrder = 10;
constexpr uint32_t kNone = ~uint32_t{0};
constexpr float kLogZero = -99.0f;

// No number of a model file is larger: sums of a few of them stay finite, and are printed whole.
constexpr double kMostLog10 = 1e6;
// Other programs let rounding lift a probability a little above 1.
constexpr double kRounding = 1e-3;

// The numbers of a file do not make a probability.
struct NotAProbability : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Every log10 probability that is a sum of numbers of a file comes through here: it is finite and
// at most 0. (Each of them may be right and the sum wrong, where a back-off weight is too large.)
inline float checked_log10(float sum) {
  if (sum <= 0) return sum;
  if (sum <= kRounding) return 0.0f;
  throw NotAProbability("gives a word log10 probability " + std::to_string(sum) +
                        ", above 0: its back-off weights do not fit its probabilities");
}

// An n-gram below the highest order; its children are [first, first of the next node).
struct Node {
  Id word;
  float prob, backoff;  // log10
  uint32_t first;
};

// An n-gram of the highest order.
struct Leaf {
  Id word;
  float prob;
};

uint64_t hash_word(std::string_view word);

// The words in front of a place in a text, as nodes: context[n - 1] is the n-gram that ends
// there, or kNone.
struct State {
  std::array<uint32_t, kMaxModelOrder> context{};
  size_t length = 0;
};

// n-grams that end in one word, by their length minus one: places in their levels, or kNone.
using Found = std::array<uint32_t, kMaxModelOrder>;

// Pointers into arrays owned by someone else.
class Model {
 public:
  size_t order = 0;
  Id words = 0, unk = 0, eos = 0;  // the model has <unk> and </s> for certain
  Id bos = kNone;
  std::array<uint64_t, kMaxModelOrder> counts{};
  std::array<const Node *, kMaxModelOrder> nodes{};  // levels 1 to order - 1, each with a sentinel
  const Leaf *leaves = nullptr;                      // level `order`, unless order is 1
  const uint64_t *text_ends = nullptr;               // end of each word in `text`
  const char *text = nullptr;
  const Id *slots = nullptr;  // open addressing: a word's id, or kNone
  uint64_t slot_mask = 0;

  std::string_view word(Id id) const {
    const uint64_t begin = id ? text_ends[id - 1] : 0;
    return {text + begin, static_cast<size_t>(text_ends[id] - begin)};
  }

  // The id of a word, or kNone.
  Id find(std::string_view word) const;

  // What stands in front of the first word of a sentence.
  State begin() const;
  State empty() const { return State{}; }

  // log10 P(word | state); `state` moves behind the word.
  float score(State &state, Id word) const;

  // The same when the n-grams that end in the word have been found already: found[n] for
  // each n from 0 to the length of the state.
  float score_found(State &state, const Found &found) const;

 private:
  // The child of node `parent` of level n whose word is `word`, or kNone.
  uint32_t child(size_t n, uint32_t parent, Id word) const;
};

}  // namespace blackout::ngram
