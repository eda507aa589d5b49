// One order of the model on its way from adjusted counts to discounted probabilities.
//
// In context order, for each context h with adjusted counts c:
//   prob(w) = (c(hw) - D(c(hw))) / sum_v c(hv)
//   gamma(h) = (sum_v D(c(hv)) + counts of pruned hv) / sum_v c(hv)
// gamma is the mass left for the lower order, and so the back-off weight of h.
#pragma once
#include <memory>

#include "ngram/adjust.h"
#include "ngram/spool.h"

namespace blackout::ngram {

class ProbabilitySink {
 public:
  virtual ~ProbabilitySink() = default;
  virtual void put(const Word *w, float probability) = 0;
};

class Order : public CountSink {
 public:
  // Writes the back-off weights of all contexts, in suffix order, into `gammas`.
  virtual void back_off(const Discount &discount, Spool &gammas, Tick &tick) = 0;

  // See interpolate.h.
  virtual void interpolate(const Spool &lower, ProbabilitySink &out, Tick &tick) = 0;
};

// Orders 2 to kMaxOrder. `resources` bounds each of the order's two sorts.
std::unique_ptr<Order> make_order(int order, const Resources &by_context,
                                  const Resources &by_suffix);

// The unigrams, whose only context is the empty one.
class Unigrams final : public CountSink {
 public:
  explicit Unigrams(size_t words) : counts_(words, 0) {}

  void add(const Word *w, uint32_t count) override { counts_[w[0]] = count; }

  // Words that were never counted are pruned when the threshold asks for any count at all.
  void prune_uncounted(uint64_t threshold);
  uint64_t kept() const;

  // Interpolated with the uniform distribution over all words but <s>, which itself has
  // probability 1.
  void interpolate(const Discount &discount, ProbabilitySink &out) const;

 private:
  std::vector<uint32_t> counts_;
};

}  // namespace blackout::ngram
