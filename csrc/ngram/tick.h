// Lets a long loop on the calling thread report how far it is, and be interrupted.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace blackout::ngram {

// (stage, done, total); an exception it raises ends the work.
using Progress = std::function<void(const std::string &, uint64_t, uint64_t)>;

class Tick {
 public:
  Tick(const Progress &progress, std::string stage, uint64_t total)
      : progress_(progress), stage_(std::move(stage)), total_(total) {
    report();
  }

  void operator()() {
    if ((++done_ & 0xFFFF) == 0) report();
  }

 private:
  void report() {
    if (progress_) progress_(stage_, done_, total_);
  }

  const Progress &progress_;
  std::string stage_;
  uint64_t total_, done_ = 0;
};

}  // namespace blackout::ngram
