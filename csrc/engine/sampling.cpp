#include "engine/sampling.h"

#include <algorithm>
#include <vector>

#include "common/random.h"
#include "engine/parallel.h"

namespace blackout {
void draw_samples(const double *threshold, const i64 *alias, i64 vocab, u64 seed, u64 step,
                  i64 groups, i64 count, i64 *samples, int threads) {
  const u64 start = mix64(mix64(seed + kGolden) + step * kGolden);
  const double scale = static_cast<double>(vocab) * 0x1p-53;
  parallel_ranges(groups * count, 2048, threads, [&](i64 begin, i64 end) {
    u64 group = static_cast<u64>(begin / count), place = static_cast<u64>(begin % count);
    for (i64 i = begin; i < end; ++i) {
      const u64 bits = mix64(start + ((group << 32) + place + 1) * kGolden);
      if (++place == static_cast<u64>(count)) ++group, place = 0;
      const double position = static_cast<double>(bits >> 11) * scale;
      const i64 column = std::min(static_cast<i64>(position), vocab - 1);
      const bool keep = position - static_cast<double>(column) < threshold[column];
      samples[i] = keep ? column : alias[column];
    }
  });
}

namespace {

// Where words are in a list, by open addressing; more places than words.
class Places {
 public:
  explicit Places(i64 words) {
    while ((i64{1} << bits_) < 2 * words) ++bits_;
    place_.assign(size_t{1} << bits_, -1);
  }
  void clear() { std::fill(place_.begin(), place_.end(), -1); }
  // The place of `word` in `list`, or where its number must be put.
  int32_t &find(i64 word, const i64 *list) {
    size_t slot = static_cast<size_t>((static_cast<u64>(word) * kGolden) >> (64 - bits_));
    while (place_[slot] >= 0 && list[place_[slot]] != word) slot = (slot + 1) & (place_.size() - 1);
    return place_[slot];
  }

 private:
  int bits_ = 1;
  std::vector<int32_t> place_;
};

i64 merge_group(const i64 *samples, i64 count, i64 *words, float *multiplicity, Places &places) {
  i64 found = 0;
  for (i64 i = 0; i < count; ++i) {
    int32_t &place = places.find(samples[i], words);
    if (place < 0) {
      place = static_cast<int32_t>(found++);
      words[place] = samples[i];
      multiplicity[place] = 0;
    }
    multiplicity[place] += 1;
  }
  std::fill(words + found, words + count, words[0]);
  std::fill(multiplicity + found, multiplicity + count, 0.0f);
  return found;
}

}  // namespace

i64 merge_copies(const i64 *samples, i64 groups, i64 count, i64 *words, float *multiplicity,
                 int threads) {
  std::vector<i64> found(static_cast<size_t>(groups));
  parallel_ranges(groups, 8192 / (count + 1) + 1, threads, [&](i64 begin, i64 end) {
    Places places(count);
    for (i64 group = begin; group < end; ++group) {
      if (group > begin) places.clear();
      const i64 row = group * count;
      found[static_cast<size_t>(group)] =
          merge_group(samples + row, count, words + row, multiplicity + row, places);
    }
  });
  return groups ? *std::max_element(found.begin(), found.end()) : 0;
}

void offsets(const double *log_q, const float *bias, double constant, const i64 *word, i64 n,
             float *out, int threads) {
  parallel_ranges(n, 4096, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i)
      out[i] = static_cast<float>(log_q[i] + constant) - (bias ? bias[word[i]] : 0.0f);
  });
}

}  // namespace blackout
