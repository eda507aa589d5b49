#include "ngram/trie.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "common/threads.h"
#include "ngram/gram.h"

namespace blackout::ngram {
namespace {

template <int N>
class LevelOf final : public Level {
 public:
  explicit LevelOf(uint64_t expected) {
    try {
      entries_.reserve(std::min<uint64_t>(expected, kNone));
    } catch (const std::bad_alloc &) {
      // A wrong number in a file; the entries that do come will tell.
    }
  }
  void add(const Id *words, float prob, float backoff) override {
    Entry entry;
    std::copy(words, words + N, entry.w);
    entry.prob = prob;
    entry.backoff = backoff;
    entries_.push_back(entry);
  }
  void sort() override {
    // Here the first word comes first, so this is the order of the trie.
    const auto less = [](const Entry &a, const Entry &b) {
      return compare_words<N>(a.w, b.w) < 0;
    };
    const auto middle = entries_.begin() + static_cast<ptrdiff_t>(entries_.size() / 2);
    if (entries_.size() > 1 << 16) {
      run_pieces(2, [&](size_t i) {
        i ? std::sort(middle, entries_.end(), less) : std::sort(entries_.begin(), middle, less);
      });
      std::inplace_merge(entries_.begin(), middle, entries_.end(), less);
    } else {
      std::sort(entries_.begin(), entries_.end(), less);
    }
  }
  size_t size() const override { return entries_.size(); }
  const Id *words(size_t i) const override { return entries_[i].w; }
  float prob(size_t i) const override { return entries_[i].prob; }
  float backoff(size_t i) const override { return entries_[i].backoff; }

 private:
  struct Entry {
    Id w[N];
    float prob, backoff;
  };
  std::vector<Entry> entries_;
};

template <int N = 2>
std::unique_ptr<Level> make_level_of(size_t order, uint64_t expected) {
  if constexpr (N > static_cast<int>(kMaxModelOrder)) {
    throw std::invalid_argument("order " + std::to_string(order) + " is too high");
  } else {
    if (order == N) return std::make_unique<LevelOf<N>>(expected);
    return make_level_of<N + 1>(order, expected);
  }
}

int compare(const Id *a, const Id *b, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

std::string spell(const ModelData &data, const Id *words, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    if (i) text += ' ';
    text += data.word(words[i]);
  }
  return text;
}

constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();

// Adds the contexts of `level` (order n) that `lower` lacks.
void add_missing(const Level &level, Level &lower, size_t n) {
  const size_t had = lower.size();
  const Id *last = nullptr;
  size_t at = 0;
  for (size_t i = 0; i < level.size(); ++i) {
    const Id *context = level.words(i);
    if (last && compare(context, last, n - 1) == 0) continue;
    last = context;
    while (at < had && compare(lower.words(at), context, n - 1) < 0) ++at;
    if (at == had || compare(lower.words(at), context, n - 1) != 0)
      lower.add(context, kUnset, 0.0f);
  }
  if (lower.size() > had) lower.sort();
}

// Points the nodes of level n - 1 at their children, the entries of level n.
void link(const Level &children, const Level *parents, std::vector<Node> &nodes, size_t n) {
  size_t child = 0;
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    nodes[i].first = static_cast<uint32_t>(child);
    const Id unigram = static_cast<Id>(i);
    const Id *words = parents ? parents->words(i) : &unigram;
    while (child < children.size() && compare(children.words(child), words, n - 1) == 0) ++child;
  }
  nodes.back().first = static_cast<uint32_t>(children.size());
}

void fill_leaves(const Level &level, size_t n, std::vector<Leaf> &leaves) {
  leaves.reserve(level.size());
  for (size_t i = 0; i < level.size(); ++i) leaves.push_back({level.words(i)[n - 1], level.prob(i)});
}

void fill_nodes(const Level &level, size_t n, std::vector<Node> &nodes) {
  nodes.reserve(level.size() + 1);
  for (size_t i = 0; i < level.size(); ++i)
    nodes.push_back({level.words(i)[n - 1], level.prob(i), level.backoff(i), 0});
  nodes.push_back({kNone, 0.0f, 0.0f, 0});
}

// Gives added n-grams of order n their probability, the lower orders being complete.
void set_unset(const Level &level, size_t n, ModelData &data) {
  const Model model = data.view();
  for (size_t i = 0; i < level.size(); ++i) {
    if (!std::isnan(level.prob(i))) continue;
    const Id *words = level.words(i);
    State shorter = model.empty(), full = model.empty();
    for (size_t k = 0; k + 1 < n; ++k) {
      if (k > 0) model.score(shorter, words[k]);
      model.score(full, words[k]);
    }
    const float backoff = model.nodes[n - 2][full.context[n - 2]].backoff;
    data.nodes[n - 1][i].prob = checked_log10(backoff + model.score(shorter, words[n - 1]));
  }
}

}  // namespace

std::unique_ptr<Level> make_level(size_t order, uint64_t expected) {
  return make_level_of<>(order, expected);
}

void build_trie(std::vector<std::unique_ptr<Level>> levels, ModelData &data) {
  data.order = levels.size() + 1;
  for (size_t i = 0; i < levels.size(); ++i) {
    const size_t n = i + 2;
    levels[i]->sort();
    for (size_t k = 1; k < levels[i]->size(); ++k)
      if (compare(levels[i]->words(k - 1), levels[i]->words(k), n) == 0)
        throw Duplicate(n, spell(data, levels[i]->words(k), n));
  }
  for (size_t n = data.order; n > 2; --n) add_missing(*levels[n - 2], *levels[n - 3], n);

  data.nodes[0].push_back({kNone, 0.0f, 0.0f, 0});
  data.nodes.resize(std::max<size_t>(1, data.order - 1));
  for (size_t n = 2; n <= data.order; ++n) {
    const Level &level = *levels[n - 2];
    if (level.size() >= kNone) throw std::invalid_argument("more than 4 billion n-grams");
    link(level, n > 2 ? levels[n - 3].get() : nullptr, data.nodes[n - 2], n);
    if (n > 2) set_unset(*levels[n - 3], n - 1, data);
    if (n > 2) levels[n - 3].reset();
    if (n == data.order)
      fill_leaves(level, n, data.leaves);
    else
      fill_nodes(level, n, data.nodes[n - 1]);
  }
}

}  // namespace blackout::ngram
