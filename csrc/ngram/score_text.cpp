#include "ngram/score_text.h"

#include <algorithm>
#include <cstring>

namespace blackout::ngram {
namespace {

constexpr size_t kLanes = 12;

// A search for a word among the children of a context, all of them sorted.
struct Search {
  const char *base;  // the last entry that may still be the one
  const char *level;
  uint32_t left;    // entries from base on that may be it
  uint32_t stride;  // bytes of an entry; the word is its first member
  Id word;
  uint32_t *found;

  Id at(uint32_t i) const {
    Id id;
    std::memcpy(&id, base + size_t{i} * stride, sizeof id);
    return id;
  }
};

// One sentence on its way.
struct Lane {
  State state;
  Found found;
  size_t at, end;
};

class Lanes {
 public:
  Lanes(const Model &model, const Id *ids, size_t n, float *out)
      : model_(model), ids_(ids), n_(n), out_(out) {}

  void run(State &state) {
    const State first = state;
    while (active_ < kLanes && next_ < n_) start(lanes_[active_++], next_ == 0 ? first : begin());
    state = n_ == 0 ? first : begin();
    while (active_ > 0) {
      collect();
      finish_searches();
      for (size_t i = 0; i < active_;) {
        advance(lanes_[i]);
        if (lanes_[i].at < lanes_[i].end || restart(lanes_[i], state)) ++i;
        else std::swap(lanes_[i], lanes_[--active_]);
      }
    }
  }

 private:
  State begin() const { return model_.begin(); }

  void start(Lane &lane, const State &state) {
    lane.state = state;
    lane.at = next_;
    const Id *end = std::find(ids_ + next_, ids_ + n_, model_.eos);
    next_ = lane.end = end == ids_ + n_ ? n_ : static_cast<size_t>(end - ids_) + 1;
  }

  // The lane's sentence is over: false when there is no other one for it.
  bool restart(Lane &lane, State &state) {
    if (lane.end == n_ && ids_[n_ - 1] != model_.eos) state = lane.state;
    if (next_ == n_) return false;
    start(lane, begin());
    return true;
  }

  void collect() {
    searches_ = 0;
    for (size_t i = 0; i < active_; ++i) {
      Lane &lane = lanes_[i];
      const Id word = ids_[lane.at];
      __builtin_prefetch(&model_.nodes[0][word]);
      lane.found[0] = word;
      for (size_t n = 1; n <= lane.state.length; ++n) {
        lane.found[n] = kNone;
        if (lane.state.context[n - 1] != kNone) add(n, lane.state.context[n - 1], word, lane.found[n]);
      }
    }
  }

  void add(size_t n, uint32_t context, Id word, uint32_t &found) {
    const Node &node = model_.nodes[n - 1][context];
    const uint32_t left = (&node)[1].first - node.first;
    if (left == 0) return;
    const bool highest = n + 1 == model_.order;
    const char *level = highest ? reinterpret_cast<const char *>(model_.leaves)
                                : reinterpret_cast<const char *>(model_.nodes[n]);
    const uint32_t stride = highest ? sizeof(Leaf) : sizeof(Node);
    Search &search = all_[searches_++];
    search = {level + size_t{node.first} * stride, level, left, stride, word, &found};
    __builtin_prefetch(search.base + size_t{left / 2} * stride);
  }

  // Halves the ranges of all searches in turn, and asks for the next entry ahead of its use.
  void finish_searches() {
    size_t open = searches_;
    while (open > 0) {
      size_t kept = 0;
      for (size_t i = 0; i < open; ++i) {
        Search search = all_[i];
        const uint32_t half = search.left / 2;
        if (half > 0) {
          const char *middle = search.base + size_t{half} * search.stride;
          search.base = search.at(half) <= search.word ? middle : search.base;
          search.left -= half;
          __builtin_prefetch(search.base + size_t{search.left / 2} * search.stride);
          all_[kept++] = search;
        } else if (search.at(0) == search.word) {
          const size_t bytes = static_cast<size_t>(search.base - search.level);
          *search.found = static_cast<uint32_t>(bytes / search.stride);
        }
      }
      open = kept;
    }
  }

  void advance(Lane &lane) { out_[lane.at++] = model_.score_found(lane.state, lane.found); }

  const Model &model_;
  const Id *ids_;
  size_t n_, next_ = 0, active_ = 0, searches_ = 0;
  float *out_;
  Lane lanes_[kLanes];
  Search all_[kLanes * kMaxModelOrder];
};

}  // namespace

void score_text(const Model &model, const Id *ids, size_t n, State &state, float *out) {
  Lanes(model, ids, n, out).run(state);
}

}  // namespace blackout::ngram
