// The objectives of one word: from z = u - log Q to J and its derivatives (ops/reference.py).
//
// `z` holds the samples' z, padded with -inf to a multiple of kLanes; on return it holds the
// derivatives by the samples' logits. One exponential for each sample.

struct WordResult {
  float value, d_target;
};

inline float exp1(float x) { return __builtin_expf(x); }
inline float log1(float x) { return __builtin_logf(x); }
inline float larger1(float a, float b) { return a > b ? a : b; }

inline float maximum_of(const float *z, i64 padded) {
  vf best = splat(kMinusInfinity);
  for (i64 k = 0; k < padded; k += kLanes) best = larger(load(z + k), best);
  return maximum(best);
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
inline WordResult blackout_word(float z_target, float *z, float *odds, i64 padded) {
  const float top_z = maximum_of(z, padded);
  i64 top = 0;
  while (top + 1 < padded && z[top] != top_z) ++top;
  z[top] = kMinusInfinity;
  const float rest_max = larger1(z_target, maximum_of(z, padded));
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
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf e = load(z + k);
    store(z + k, e * (to_p * (odds_sum - 2.0f - load(odds + k)) + to_share));
  }
  z[top] = p_top * (odds_sum - 2.0f);

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
  const float top = maximum_of(z, padded);
  const float shift = top > kMinusInfinity ? top : 0.0f;  // no sample left: all e_j are 0
  const float all_max = larger1(z_target, top);
  const float sample_total = exponentials(z, padded, shift);
  const float e_target = exp1(z_target - all_max);
  const float scale = top > kMinusInfinity ? exp1(top - all_max) : 0.0f;
  const float total = e_target + scale * sample_total;
  return {sample_total, e_target / total, scale / total, (z_target - all_max) - log1(total)};
}

// J = log p_i + sum_j log(1 - p_j), 1 - p_j = S / (e_j + S), S the sum over the samples.
inline WordResult blackout_noise_word(float z_target, float *z, i64 padded) {
  const Softmax s = softmax(z_target, z, padded);
  const float to_share = s.sample_total > 0 ? 1.0f / s.sample_total : 0.0f;
  vf noise_total{}, miss{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf share = load(z + k) * to_share;
    noise_total += share / (1.0f + share);
    miss += log1p_unit(share);
  }
  const float noise_sum = sum(noise_total);
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf e = load(z + k), share = e * to_share;
    store(z + k, share * noise_sum - share / (1.0f + share) - e * s.to_p);
  }
  return {s.log_p_target - sum(miss), 1.0f - s.p_target};
}

// J = log p_i.
inline WordResult importance_word(float z_target, float *z, i64 padded) {
  const Softmax s = softmax(z_target, z, padded);
  for (i64 k = 0; k < padded; k += kLanes) store(z + k, load(z + k) * -s.to_p);
  return {s.log_p_target, 1.0f - s.p_target};
}

// J = log sigma(d_i) + sum_j log sigma(-d_j); z holds d.
inline WordResult nce_word(float d, float *z, i64 padded) {
  vf loss{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf x = load(z + k);
    const vf t = exponential(x < 0.0f ? x : -x);  // e^-|x|
    loss += (x > 0.0f ? x : vf{}) + log1p_unit(t);
    store(z + k, (x < 0.0f ? -t : splat(-1.0f)) / (1.0f + t));
  }
  const float t = exp1(d < 0 ? d : -d);
  const float log_sigma = (d < 0 ? d : 0.0f) - __builtin_log1pf(t);
  return {log_sigma - sum(loss), (d < 0 ? 1.0f : t) / (1.0f + t)};
}

inline WordResult word_objective(int objective, float z_target, float *z, float *odds, i64 padded) {
  switch (objective) {
    case kBlackout: return blackout_word(z_target, z, odds, padded);
    case kBlackoutNoise: return blackout_noise_word(z_target, z, padded);
    case kImportance: return importance_word(z_target, z, padded);
    default: return nce_word(z_target, z, padded);
  }
}
