// Threads for long pieces of work. A system that gives no more of them makes the work slower, not
// wrong, and never ends the process: destroying a running std::thread would.
#pragma once
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace blackout {

// Starts body(0) … body(wanted-1), each on a thread of its own, as many as the system gives; the
// first ones come first.
template <class Body>
std::vector<std::thread> start_threads(size_t wanted, Body body) {
  std::vector<std::thread> threads;
  threads.reserve(wanted);
  try {
    while (threads.size() < wanted) threads.emplace_back(body, threads.size());
  } catch (const std::system_error &) {
  }
  return threads;
}

// Calls work(0) … work(pieces-1), side by side where there are threads; gives what each one raised.
template <class Work>
std::vector<std::exception_ptr> try_pieces(size_t pieces, Work &&work) {
  std::vector<std::exception_ptr> raised(pieces);
  auto guarded = [&](size_t i) {
    try {
      work(i);
    } catch (...) {
      raised[i] = std::current_exception();
    }
  };
  if (pieces == 0) return raised;
  // The last piece is the calling thread's own.
  std::vector<std::thread> threads = start_threads(pieces - 1, guarded);
  for (size_t i = threads.size(); i < pieces; ++i) guarded(i);
  for (std::thread &thread : threads) thread.join();
  return raised;
}

// Likewise; hands on the exception of the first piece that raised one.
template <class Work>
void run_pieces(size_t pieces, Work &&work) {
  for (std::exception_ptr &e : try_pieces(pieces, work))
    if (e) std::rethrow_exception(e);
}

}  // namespace blackout
