// The objectives of one word: from z = u - log Q to J and its derivatives (ops/reference).
//
// `z` holds the samples' z, padded with -inf to a multiple of kLanes; the derivatives by the
// samples' logits go to `out`. One exponential for each sample.

struct WordResult {
  float value, d_target;
};

inline float exp1(float x) { return __builtin_expf(x); }
inline float log1(float x) { return __builtin_logf(x); }
inline float larger1(float a, float b) { return a > b ? a : b; }

// The largest and the second largest z.
struct Top {
  float first, second;
};

inline Top top_two(const float *z, i64 padded) {
  vf first = splat(kMinusInfinity), second = first;
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf x = load(z + k);
    const vf lower = x > first ? first : x;
    first = larger(x, first);
    second = larger(lower, second);
  }
  Top top{maximum(first), kMinusInfinity};
  bool seen = false;  // the first copy of the maximum is `first`, another one is `second`
  for (int i = 0; i < kLanes; ++i) {
    const bool is_top = !seen && first[i] == top.first;
    seen = seen || is_top;
    top.second = larger1(is_top ? second[i] : first[i], top.second);
  }
  return top;
}

inline i64 place_of(float value, const float *z, i64 padded) {
  i64 k = 0;
  for (; k + kLanes < padded; k += kLanes) {
    const vi equal = load(z + k) == value;
    int32_t any = 0;
    for (int i = 0; i < kLanes; ++i) any |= equal[i];
    if (any) break;
  }
  const i64 end = k + kLanes < padded ? k + kLanes : padded;
  while (k + 1 < end && z[k] != value) ++k;
  return k;
}

// z <- exp(z - shift); the sum.
inline float exponentials(float *z, i64 padded, float shift) {
  vf total{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf e = exponential(load(z + k) - shift);
    store(z + k, e);
    total += e;
  }
  return sum(total);
}

// J = log p_i + sum_j log(1 - p_j). Only the sample with the largest z, `top`, can have p > 1/2: it
// is left out of the exponentials, so that 1 - p_top is a sum of the others, without cancellation.
template <class T>
inline WordResult blackout_word(float z_target, float *z, float *odds, i64 n, i64 padded, T *out) {
  const Top best = top_two(z, padded);
  const float top_z = best.first;
  const i64 top = place_of(top_z, z, padded);
  z[top] = kMinusInfinity;
  const float rest_max = larger1(z_target, best.second);
  const float all_max = larger1(rest_max, top_z);
  const float rest_target = exp1(z_target - rest_max);
  const float rest_total = rest_target + exponentials(z, padded, rest_max);
  const float scale = exp1(rest_max - all_max);
  const float e_top = exp1(top_z - all_max);
  const float total = scale * rest_total + e_top;
  const float to_p = scale / total;         // z now holds e: p_j = e_j * to_p
  const float p_top = e_top / total;
  const float to_share = p_top / rest_total;  // p_j p_top / (1 - p_top)

  vf odds_total{}, miss{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf p = load(z + k) * to_p;
    const vf r = p / (1.0f - p);  // p_j / (1 - p_j) <= 1
    store(odds + k, r);
    odds_total += r;
    miss += log1p_unit(r);  // -log(1 - p_j) = log(1 + r_j)
  }
  const float odds_sum = sum(odds_total);
  sweep(n, [&](i64 k, auto part) {
    const vf e = load(z + k);
    part.put(out + k, e * (to_p * (odds_sum - 2.0f - load(odds + k)) + to_share));
  });
  set(out + top, p_top * (odds_sum - 2.0f));

  const float log_total = log1(total);
  const float log_p_target = (z_target - all_max) - log_total;
  const float log_miss_top = (rest_max - all_max) + (log1(rest_total) - log_total);
  const float p_target = rest_target * to_p;
  return {log_p_target + log_miss_top - sum(miss),
          1.0f - p_target + p_target * odds_sum + rest_target * to_share};
}

// Exponentials of the samples by their own maximum, and the softmax over target and samples.
struct Softmax {
  float sample_total;  // sum of e_j
  float p_target, to_p;  // p_j = e_j * to_p
  float log_p_target;
};

inline Softmax softmax(float z_target, float *z, i64 padded) {
  const float top = top_two(z, padded).first;
  const float shift = top > kMinusInfinity ? top : 0.0f;  // no sample left: all e_j are 0
  const float all_max = larger1(z_target, top);
  const float sample_total = exponentials(z, padded, shift);
  const float e_target = exp1(z_target - all_max);
  const float scale = top > kMinusInfinity ? exp1(top - all_max) : 0.0f;
  const float total = e_target + scale * sample_total;
  return {sample_total, e_target / total, scale / total, (z_target - all_max) - log1(total)};
}

// J = log p_i + sum_j log(1 - p_j), 1 - p_j = S / (e_j + S), S the sum over the samples.
template <class T>
inline WordResult blackout_noise_word(float z_target, float *z, i64 n, i64 padded, T *out) {
  const Softmax s = softmax(z_target, z, padded);
  const float to_share = s.sample_total > 0 ? 1.0f / s.sample_total : 0.0f;
  vf noise_total{}, miss{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf share = load(z + k) * to_share;
    noise_total += share / (1.0f + share);
    miss += log1p_unit(share);
  }
  const float noise_sum = sum(noise_total);
  sweep(n, [&](i64 k, auto part) {
    const vf e = load(z + k), share = e * to_share;
    part.put(out + k, share * noise_sum - share / (1.0f + share) - e * s.to_p);
  });
  return {s.log_p_target - sum(miss), 1.0f - s.p_target};
}

// J = log p_i.
template <class T>
inline WordResult sampled_word(float z_target, float *z, i64 n, i64 padded, T *out) {
  const Softmax s = softmax(z_target, z, padded);
  sweep(n, [&](i64 k, auto part) { part.put(out + k, load(z + k) * -s.to_p); });
  return {s.log_p_target, 1.0f - s.p_target};
}

// J = log sigma(d_i) + sum_j log sigma(-d_j); z holds d.
template <class T> inline WordResult nce_word(float d, float *z, i64 n, T *out) {
  vf loss{};
  sweep(n, [&](i64 k, auto part) {
    const vf x = load(z + k);                     // padding: -inf adds nothing
    const vf t = exponential(x < 0.0f ? x : -x);  // e^-|x|
    loss += (x > 0.0f ? x : vf{}) + log1p_unit(t);
    part.put(out + k, (x < 0.0f ? -t : splat(-1.0f)) / (1.0f + t));
  });
  const float t = exp1(d < 0 ? d : -d);
  const float log_sigma = (d < 0 ? d : 0.0f) - __builtin_log1pf(t);
  return {log_sigma - sum(loss), (d < 0 ? 1.0f : t) / (1.0f + t)};
}

template <class T>
inline WordResult word_objective(int objective, float z_target, float *z, float *odds, i64 n,
                                 i64 padded, T *out) {
  switch (objective) {
    case kBlackout: return blackout_word(z_target, z, odds, n, padded, out);
    case kBlackoutNoise: return blackout_noise_word(z_target, z, n, padded, out);
    case kSampled: return sampled_word(z_target, z, n, padded, out);
    default: return nce_word(z_target, z, n, out);
  }
}
