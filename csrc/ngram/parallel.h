// Runs pieces of work on a few threads and hands on the first exception.
#pragma once
#include <exception>
#include <thread>
#include <vector>

namespace blackout::ngram {

template <class Work>
void run_parallel(size_t pieces, Work &&work) {
  std::vector<std::exception_ptr> raised(pieces);
  auto guarded = [&](size_t i) {
    try {
      work(i);
    } catch (...) {
      raised[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < pieces; ++i) threads.emplace_back(guarded, i);
  if (pieces > 0) guarded(0);
  for (std::thread &thread : threads) thread.join();
  for (std::exception_ptr &e : raised)
    if (e) std::rethrow_exception(e);
}

}  // namespace blackout::ngram
