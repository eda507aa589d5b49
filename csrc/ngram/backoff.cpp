#include "ngram/backoff.h"

#include <array>
#include <stdexcept>
#include <string>

#include "ngram/external_sort.h"
#include "ngram/interpolate.h"

namespace blackout::ngram {
namespace {

// Sums over the continuations of one context.
class Mass {
 public:
  void add(uint32_t marked) {
    const uint32_t count = marked & kMaxCount;
    total_ += count;
    if (marked & kPruned)
      pruned_ += count;
    else
      ++with_[count < 3 ? count : 3];
  }
  double total() const { return static_cast<double>(total_); }
  double gamma(const Discount &discount) const {
    double left = static_cast<double>(pruned_);
    for (size_t j = 1; j <= 3; ++j) left += discount.amount[j] * static_cast<double>(with_[j]);
    return left / total();
  }

 private:
  uint64_t total_ = 0, pruned_ = 0;
  std::array<uint64_t, 4> with_{};
};

template <int N>
class OrderOf final : public Order {
 public:
  OrderOf(const Resources &by_context, const Resources &by_suffix)
      : by_context_(by_context), by_suffix_(by_suffix) {}

  void add(const Word *w, uint32_t count) override {
    Counted<N> record;
    std::copy(w, w + N, record.w);
    record.count = count;
    by_context_.push(record);
  }

  void back_off(const Discount &discount, Spool &gammas, Tick &tick) override {
    by_context_.finish();
    std::vector<Counted<N>> group;
    while (const Counted<N> *record = by_context_.next()) {
      if (!group.empty() && compare_words<N - 1>(group[0].w + 1, record->w + 1) != 0)
        close(group, discount, gammas);
      group.push_back(*record);
      tick();
    }
    if (!group.empty()) close(group, discount, gammas);
    gammas.flush();
    by_context_.release();
  }

  void interpolate(const Spool &lower, ProbabilitySink &out, Tick &tick) override {
    by_suffix_.finish();
    interpolate_order<N>(by_suffix_, lower, out, tick);
    by_suffix_.release();
  }

 private:
  void close(std::vector<Counted<N>> &group, const Discount &discount, Spool &gammas) {
    Mass mass;
    for (const Counted<N> &record : group) mass.add(record.count);
    const double gamma = mass.gamma(discount);
    gammas.append(group[0].w + 1, static_cast<float>(gamma));
    for (const Counted<N> &record : group) {
      if (record.count & kPruned) continue;
      Discounted<N> out;
      std::copy(record.w, record.w + N, out.w);
      out.prob = static_cast<float>((record.count - discount.of(record.count)) / mass.total());
      out.gamma = static_cast<float>(gamma);
      by_suffix_.push(out);
    }
    group.clear();
  }

  ExternalSorter<Counted<N>, ContextOrder<N>> by_context_;
  ExternalSorter<Discounted<N>, SuffixOrder<N>> by_suffix_;
};

}  // namespace

std::unique_ptr<Order> make_order(int order, const Resources &by_context,
                                  const Resources &by_suffix) {
  switch (order) {
    case 2: return std::make_unique<OrderOf<2>>(by_context, by_suffix);
    case 3: return std::make_unique<OrderOf<3>>(by_context, by_suffix);
    case 4: return std::make_unique<OrderOf<4>>(by_context, by_suffix);
    case 5: return std::make_unique<OrderOf<5>>(by_context, by_suffix);
    case 6: return std::make_unique<OrderOf<6>>(by_context, by_suffix);
    default: throw std::invalid_argument("order must be 2 to 6, not " + std::to_string(order));
  }
}

void Unigrams::prune_uncounted(uint64_t threshold) {
  if (threshold == 0) return;
  for (size_t w = kEos + 1; w < counts_.size(); ++w)
    if (counts_[w] == 0) counts_[w] = kPruned;
}

uint64_t Unigrams::kept() const {
  uint64_t n = 0;
  for (uint32_t count : counts_) n += !(count & kPruned);
  return n;
}

void Unigrams::interpolate(const Discount &discount, ProbabilitySink &out) const {
  Mass mass;
  for (uint32_t count : counts_) mass.add(count);
  const double uniform = mass.gamma(discount) / static_cast<double>(kept() - 1);
  for (Word w = 0; w < counts_.size(); ++w) {
    if (counts_[w] & kPruned) continue;
    const double p = (counts_[w] - discount.of(counts_[w])) / mass.total() + uniform;
    out.put(&w, w == kBos ? 1.0f : static_cast<float>(p));
  }
}

}  // namespace blackout::ngram
