#include "engine/buffers.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <list>
#include <mutex>
#include <new>

#include "common/checked_size.h"

namespace blackout {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kMostIdle = 64;  // buffers that wait at most

std::mutex mutex;
std::list<Buffer *> &idle() {
  static auto *buffers = new std::list<Buffer *>;  // outlives the interpreter's last arrays
  return *buffers;
}

void destroy(Buffer *buffer) {
  std::free(buffer->data);
  delete buffer;
}

}  // namespace

void advise_huge_pages(void *data, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

Buffer *take_buffer(size_t bytes) {
  const size_t unit = bytes >= kHugePage ? kHugePage : 4096;
  bytes = checked_multiply(bytes / unit + 1, unit);
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto best = idle().end();
    for (auto it = idle().begin(); it != idle().end(); ++it)
      if ((*it)->bytes >= bytes && (*it)->bytes <= bytes + bytes / 4 &&
          (best == idle().end() || (*it)->bytes < (*best)->bytes))
        best = it;
    if (best != idle().end()) {
      Buffer *found = *best;
      idle().erase(best);
      return found;
    }
  }
  void *data = std::aligned_alloc(unit, bytes);
  if (!data) throw std::bad_alloc();
  advise_huge_pages(data, bytes);
  return new Buffer{data, bytes};
}

void give_back_buffer(Buffer *buffer) {
  std::lock_guard<std::mutex> lock(mutex);
  idle().push_front(buffer);
  if (idle().size() <= kMostIdle) return;
  destroy(idle().back());
  idle().pop_back();
}

void drop_idle_buffers() {
  std::lock_guard<std::mutex> lock(mutex);
  for (Buffer *buffer : idle()) destroy(buffer);
  idle().clear();
}

}  // namespace blackout
