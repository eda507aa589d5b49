// Room for many records at once, in huge pages where the system has them: touching a gigabyte
// for the first time in small ones takes as long as sorting a good part of it.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "common/checked_size.h"

namespace blackout::ngram {

template <class Record>
class BigBuffer {
 public:
  BigBuffer() = default;
  ~BigBuffer() { reset(); }
  BigBuffer(const BigBuffer &) = delete;
  BigBuffer &operator=(const BigBuffer &) = delete;

  // Untouched pages cost nothing, so a generous setting does not hurt a small text.
  void allocate(size_t records) {
    constexpr size_t kHuge = size_t{2} << 20;
    const size_t bytes = checked_round_up(checked_multiply(records, sizeof(Record)), kHuge);
    data_ = static_cast<Record *>(std::aligned_alloc(kHuge, bytes));
    if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    ::madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  void reset() {
    std::free(data_);
    data_ = nullptr;
  }
  Record *get() const { return data_; }

 private:
  Record *data_ = nullptr;
};

}  // namespace blackout::ngram
