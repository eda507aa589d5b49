#include "engine/windows.h"

#include <algorithm>
#include <numeric>

#include "engine/parallel.h"

namespace blackout {
namespace {

// Calls body(place, column, n) for the stretches of a window: words first … first + columns - 1 of
// a history that starts at `start`, as often as the table ends among them.
template <class F>
inline void stretches(i64 start, i64 first, i64 columns, i64 size, F &&body) {
  i64 place = (start + first) & (size - 1);
  for (i64 column = 0; column < columns;) {
    const i64 n = std::min(columns - column, size - place);
    body(place, column, n);
    column += n;
    place = 0;
  }
}

}  // namespace

void window_values(const float *numbers, i64 size, const WindowWords &words, float *of_target,
                   float *of_samples, int threads) {
  const i64 mask = size - 1, orders = words.orders, columns = words.samples;
  parallel_ranges(words.groups * words.group_words, 64, threads, [&](i64 begin, i64 end) {
    for (i64 word = begin; word < end; ++word) {
      const i64 *start = words.start + word * orders;
      const i64 *sample = words.sample + word / words.group_words * columns;
      float *out = of_samples + word * columns;
      float sum = 0;
      std::fill_n(out, columns, 0.0f);
      for (i64 n = 0; n < orders; ++n) {
        sum += numbers[(start[n] + words.target[word]) & mask];
        for (i64 k = 0; k < columns; ++k) out[k] += numbers[(start[n] + sample[k]) & mask];
      }
      of_target[word] = sum;
    }
  });
}

void add_windows(const float *numbers, i64 size, const i64 *start, i64 orders, i64 n, i64 first,
                 i64 columns, float *logits, int threads) {
  parallel_ranges(n, 16, threads, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row)
      for (i64 order = 0; order < orders; ++order)
        stretches(start[row * orders + order], first, columns, size, [&](i64 from, i64 to, i64 m) {
          float *out = logits + row * columns + to;
          for (i64 i = 0; i < m; ++i) out[i] += numbers[from + i];
        });
  });
}

void add_window_gradient(const float *d_logits, const i64 *start, i64 orders, i64 n, i64 first,
                         i64 columns, float *d_numbers, i64 size, int threads) {
  parallel_ranges(size, 1 << 14, threads, [&](i64 low, i64 high) {  // each thread its own places
    for (i64 row = 0; row < n; ++row)
      for (i64 order = 0; order < orders; ++order)
        stretches(start[row * orders + order], first, columns, size, [&](i64 to, i64 from, i64 m) {
          const i64 begin = std::max(to, low), end = std::min(to + m, high);
          const float *d = d_logits + row * columns + from - to;
          for (i64 place = begin; place < end; ++place) d_numbers[place] += d[place];
        });
  });
}

WindowSums::WindowSums(i64 size)
    : size_(size),
      sums_(static_cast<size_t>(size)),
      touched_(static_cast<size_t>((size + 63) / 64)) {}

i64 WindowSums::add(const float *numbers, const WindowWords &words, const float *d_target,
                    const float *d_samples, int threads) {
  const std::lock_guard<std::mutex> alone(busy_);
  const i64 samples = words.samples;
  sorted_.resize(static_cast<size_t>(words.groups * samples));
  column_.resize(sorted_.size());
  for (i64 group = 0; group < words.groups; ++group) {
    const i64 *word = words.sample + group * samples;
    i64 *column = column_.data() + group * samples;
    std::iota(column, column + samples, 0);
    std::stable_sort(column, column + samples, [&](i64 a, i64 b) { return word[a] < word[b]; });
    for (i64 k = 0; k < samples; ++k)
      sorted_[static_cast<size_t>(group * samples + k)] = word[column[k]];
  }
  const i64 blocks = static_cast<i64>(touched_.size());
  parallel_ranges(blocks, 256, threads, [&](i64 begin, i64 end) {
    add_range(numbers, words, d_target, d_samples, begin * 64, std::min(end * 64, size_));
  });
  i64 found = 0;
  for (const uint64_t bits : touched_) found += __builtin_popcountll(bits);
  return found;
}

void WindowSums::add_range(const float *numbers, const WindowWords &words, const float *d_target,
                           const float *d_samples, i64 low, i64 high) {
  const i64 samples = words.samples, mask = size_ - 1;
  for (i64 word = 0; word < words.groups * words.group_words; ++word) {
    const i64 group = word / words.group_words;
    const i64 *sorted = sorted_.data() + group * samples, *end = sorted + samples;
    const i64 *column = column_.data() + group * samples;
    const float *d = d_samples + word * samples;
    for (i64 order = 0; order < words.orders; ++order) {
      const i64 start = words.start[word * words.orders + order] & mask;
      const i64 place = (start + words.target[word]) & mask;
      if (place >= low && place < high) put(place, d_target[word]);
      // words whose place, before it is taken modulo the size, lies in a copy of low … high - 1
      const i64 *at = sorted;
      for (i64 copy = -start; at < end; copy += size_) {
        at = std::lower_bound(at, end, copy + low);
        for (; at < end && *at < copy + high; ++at)
          if (numbers[*at - copy] != 0) put(*at - copy, d[column[at - sorted]]);
      }
    }
  }
}

void WindowSums::take(i64 *places, float *values) {
  const std::lock_guard<std::mutex> alone(busy_);
  for (size_t block = 0; block < touched_.size(); ++block) {
    for (uint64_t bits = touched_[block]; bits; bits &= bits - 1) {
      const size_t place = block * 64 + static_cast<size_t>(__builtin_ctzll(bits));
      *places++ = static_cast<i64>(place);
      *values++ = sums_[place];
      sums_[place] = 0;
    }
    touched_[block] = 0;
  }
}

}  // namespace blackout
