#include "engine/sampling.h"

#include <algorithm>

#include "common/random.h"
#include "engine/parallel.h"

namespace blackout {
void draw_samples(const double *threshold, const i64 *alias, i64 vocab, u64 seed, u64 step,
                  i64 groups, i64 count, i64 *samples, int threads) {
  const u64 start = mix64(mix64(seed + kGolden) + step * kGolden);
  const double scale = static_cast<double>(vocab) * 0x1p-53;
  parallel_ranges(groups * count, 2048, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      const u64 group = static_cast<u64>(i / count), place = static_cast<u64>(i % count);
      const u64 bits = mix64(start + ((group << 32) + place + 1) * kGolden);
      const double position = static_cast<double>(bits >> 11) * scale;
      const i64 column = std::min(static_cast<i64>(position), vocab - 1);
      const bool keep = position - static_cast<double>(column) < threshold[column];
      samples[i] = keep ? column : alias[column];
    }
  });
}

void offsets(const double *log_q, const float *bias, double constant, const i64 *word, i64 n,
             float *out, int threads) {
  parallel_ranges(n, 4096, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i)
      out[i] = static_cast<float>(log_q[i] + constant) - (bias ? bias[word[i]] : 0.0f);
  });
}

}  // namespace blackout
