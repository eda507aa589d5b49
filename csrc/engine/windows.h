// Hashed n-gram features that lie in windows of one table: of a history with N hashed starts,
// word w has the sum over them of numbers[(start + w) mod n]; n is a power of two.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/kernels.h"

namespace blackout {

// The words of a block in groups of `group_words` that share `samples` words.
struct WindowWords {
  i64 groups, group_words, samples, orders;
  const i64 *start;   // (groups * group_words, orders)
  const i64 *target;  // (groups * group_words,)
  const i64 *sample;  // (groups, samples)
};

// The features of targets (words,) and of the samples of each word (words, samples).
void window_values(const float *numbers, i64 size, const WindowWords &words, float *of_target,
                   float *of_samples, int threads);

// Adds to logits (n, columns) of the words first, first + 1, … their features.
void add_windows(const float *numbers, i64 size, const i64 *start, i64 orders, i64 n, i64 first,
                 i64 columns, float *logits, int threads);

// Adds derivatives by such logits to those by the numbers, (size,).
void add_window_gradient(const float *d_logits, const i64 *start, i64 orders, i64 n, i64 first,
                         i64 columns, float *d_numbers, i64 size, int threads);

// Gradients of the numbers: added up in a table beside them, of which only touched places are seen.
// A place's sum has one order whatever the threads, each of which owns a range of places.
class WindowSums {
 public:
  explicit WindowSums(i64 size);
  // Adds the derivatives of a block by its features; how many places are touched: those of targets,
  // and of samples whose number is no longer 0 (a target has had it), be the derivative 0 or not.
  i64 add(const float *numbers, const WindowWords &words, const float *d_target,
          const float *d_samples, int threads);
  // The touched places, ascending, and their sums; all is 0 again afterwards.
  void take(i64 *places, float *values);

 private:
  void add_range(const float *numbers, const WindowWords &words, const float *d_target,
                 const float *d_samples, i64 low, i64 high);
  void put(i64 place, float value) {
    touched_[static_cast<size_t>(place >> 6)] |= uint64_t{1} << (place & 63);
    sums_[static_cast<size_t>(place)] += value;
  }

  i64 size_;
  std::mutex busy_;
  std::vector<float> sums_;
  std::vector<uint64_t> touched_;
  std::vector<i64> sorted_;  // (groups, samples): the words of each group, ascending, …
  std::vector<i64> column_;  // … and their columns
};

}  // namespace blackout
