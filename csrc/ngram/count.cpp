#include "ngram/count.h"

#include <stdexcept>
#include <string>
#include <type_traits>

namespace blackout::ngram {
namespace {

template <int N>
struct AddCounts {
  bool operator()(Counted<N> &a, const Counted<N> &b) const {
    if (compare_words<N>(a.w, b.w) != 0) return false;
    if (b.count > kMaxCount - a.count)
      throw std::runtime_error("an n-gram occurs more than " + std::to_string(kMaxCount) +
                               " times");
    a.count += b.count;
    return true;
  }
};

template <int N>
class CountsOf final : public Counts {
 public:
  explicit CountsOf(const Resources &resources) : sorter_(resources) {}

  void push(const Word *w) override {
    Counted<N> record;
    std::copy(w, w + N, record.w);
    record.count = 1;
    sorter_.push(record);
  }
  void finish() override { sorter_.finish(); }
  const Word *next(uint32_t &count) override {
    const Counted<N> *record = sorter_.next();
    if (!record) return nullptr;
    count = record->count;
    return record->w;
  }
  void release() override { sorter_.release(); }

 private:
  ExternalSorter<Counted<N>, SuffixOrder<N>, AddCounts<N>> sorter_;
};

}  // namespace

std::unique_ptr<Counts> make_counts(int order, const Resources &resources) {
  switch (order) {
    case 1: return std::make_unique<CountsOf<1>>(resources);
    case 2: return std::make_unique<CountsOf<2>>(resources);
    case 3: return std::make_unique<CountsOf<3>>(resources);
    case 4: return std::make_unique<CountsOf<4>>(resources);
    case 5: return std::make_unique<CountsOf<5>>(resources);
    case 6: return std::make_unique<CountsOf<6>>(resources);
    default: throw std::invalid_argument("order must be 1 to 6, not " + std::to_string(order));
  }
}

}  // namespace blackout::ngram
