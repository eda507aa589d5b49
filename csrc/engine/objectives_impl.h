// The objectives of one word: from z = u - log Q to J and its derivatives (ops/reference).
//
// `z` holds the samples' z, padded with -inf to a multiple of kLanes; the derivatives by the
// samples' logits go to `out`, of all copies of a sample together. One exponential for each sample.

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
  // The first copy of the maximum is `first`; in its lane the next is `second`.
  const float top = maximum(first);
  const int lane = lane_of(top, first);
  vi number;
  for (int i = 0; i < kLanes; ++i) number[i] = i;
  return {top, maximum(number == lane ? second : first)};
}

inline i64 place_of(float value, const float *z, i64 padded) {
  for (i64 k = 0; k < padded; k += kLanes) {
    const int lane = lane_of(value, load(z + k));
    if (lane < kLanes) return k + lane;
  }
  return padded - 1;  // NaN is nowhere
}

// How often each sample counts: once, or as often as `multiplicity` says, which is padded with 0.
struct Once {
  vf times(i64, vf x) const { return x; }
  float at(i64) const { return 1.0f; }
};
struct Merged {
  const float *multiplicity;
  vf times(i64 k, vf x) const { return x * load(multiplicity + k); }
  float at(i64 k) const { return multiplicity[k]; }
};

// z <- exp(z - shift); the sum over all copies.
template <class Copies>
inline float exponentials(float *z, i64 padded, float shift, Copies copies) {
  vf total{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf e = exponential(load(z + k) - shift);
    store(z + k, e);
    total += copies.times(k, e);
  }
  return sum(total);
}

// J = log p_i + sum_j log(1 - p_j). Only one copy of the sample with the largest z, `top`, can have
// p > 1/2: it is left out of the exponentials, so that 1 - p_top is a sum of the others, without
// cancellation. Where more copies of it are left, sums over all lose one of several equal terms.
template <class Copies, class T>
inline WordResult blackout_word(float z_target, float *z, float *odds, i64 n, i64 padded,
                                Copies copies, T *out) {
  const Top best = top_two(z, padded);
  const float top_z = best.first;
  const i64 top = place_of(top_z, z, padded);
  const float left = copies.at(top) - 1.0f;  // copies of the top in the rest
  const bool alone = !(left > 0.0f);
  if (alone) z[top] = kMinusInfinity;
  const float rest_max = larger1(z_target, alone ? best.second : top_z);
  const float all_max = larger1(rest_max, top_z);
  const float rest_target = exp1(z_target - rest_max);
  const float rest_top = alone ? 0.0f : exp1(top_z - rest_max);
  const float rest_total = rest_target + (exponentials(z, padded, rest_max, copies) - rest_top);
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
    odds_total += copies.times(k, r);
    miss += copies.times(k, log1p_unit(r));  // -log(1 - p_j) = log(1 + r_j)
  }
  const float top_odds = alone ? 0.0f : odds[top];
  const float odds_sum = sum(odds_total) - top_odds;
  sweep(n, [&](i64 k, auto part) {
    const vf e = load(z + k);
    const vf d = e * (to_p * (odds_sum - 2.0f - load(odds + k)) + to_share);
    part.put(out + k, copies.times(k, d));
  });
  const float d_rest = rest_top * (to_p * (odds_sum - 2.0f - top_odds) + to_share);
  if (top < n) set(out + top, p_top * (odds_sum - 2.0f) + (alone ? 0.0f : left * d_rest));

  const float log_total = log1(total);
  const float log_p_target = (z_target - all_max) - log_total;
  const float log_miss_top = (rest_max - all_max) + (log1(rest_total) - log_total);
  const float p_target = rest_target * to_p;
  return {log_p_target + log_miss_top - (sum(miss) - __builtin_log1pf(top_odds)),
          1.0f - p_target + p_target * odds_sum + rest_target * to_share};
}

// Exponentials of the samples by their own maximum, and the softmax over target and samples.
struct Softmax {
  float sample_total;  // sum of e_j
  float p_target, to_p;  // p_j = e_j * to_p
  float log_p_target;
};

template <class Copies>
inline Softmax softmax(float z_target, float *z, i64 padded, Copies copies) {
  const float top = top_two(z, padded).first;
  const float shift = top > kMinusInfinity ? top : 0.0f;  // no sample left: all e_j are 0
  const float all_max = larger1(z_target, top);
  const float sample_total = exponentials(z, padded, shift, copies);
  const float e_target = exp1(z_target - all_max);
  const float scale = top > kMinusInfinity ? exp1(top - all_max) : 0.0f;
  const float total = e_target + scale * sample_total;
  return {sample_total, e_target / total, scale / total, (z_target - all_max) - log1(total)};
}

// J = log p_i + sum_j log(1 - p_j), 1 - p_j = S / (e_j + S), S the sum over the samples.
template <class Copies, class T>
inline WordResult blackout_noise_word(float z_target, float *z, i64 n, i64 padded, Copies copies,
                                      T *out) {
  const Softmax s = softmax(z_target, z, padded, copies);
  const float to_share = s.sample_total > 0 ? 1.0f / s.sample_total : 0.0f;
  vf noise_total{}, miss{};
  for (i64 k = 0; k < padded; k += kLanes) {
    const vf share = load(z + k) * to_share;
    noise_total += copies.times(k, share / (1.0f + share));
    miss += copies.times(k, log1p_unit(share));
  }
  const float noise_sum = sum(noise_total);
  sweep(n, [&](i64 k, auto part) {
    const vf e = load(z + k), share = e * to_share;
    const vf d = share * noise_sum - share / (1.0f + share) - e * s.to_p;
    part.put(out + k, copies.times(k, d));
  });
  return {s.log_p_target - sum(miss), 1.0f - s.p_target};
}

// J = log p_i.
template <class Copies, class T>
inline WordResult sampled_word(float z_target, float *z, i64 n, i64 padded, Copies copies, T *out) {
  const Softmax s = softmax(z_target, z, padded, copies);
  sweep(n, [&](i64 k, auto part) { part.put(out + k, copies.times(k, load(z + k) * -s.to_p)); });
  return {s.log_p_target, 1.0f - s.p_target};
}

// J = log sigma(d_i) + sum_j log sigma(-d_j); z holds d.
template <class Copies, class T>
inline WordResult nce_word(float d, float *z, i64 n, Copies copies, T *out) {
  vf loss{};
  sweep(n, [&](i64 k, auto part) {
    const vf x = load(z + k);                     // padding: -inf adds nothing
    const vf t = exponential(x < 0.0f ? x : -x);  // e^-|x|
    loss += copies.times(k, (x > 0.0f ? x : vf{}) + log1p_unit(t));
    part.put(out + k, copies.times(k, (x < 0.0f ? -t : splat(-1.0f)) / (1.0f + t)));
  });
  const float t = exp1(d < 0 ? d : -d);
  const float log_sigma = (d < 0 ? d : 0.0f) - __builtin_log1pf(t);
  return {log_sigma - sum(loss), (d < 0 ? 1.0f : t) / (1.0f + t)};
}

template <class Copies, class T>
inline WordResult word_objective(int objective, float z_target, float *z, float *odds, i64 n,
                                 i64 padded, Copies copies, T *out) {
  switch (objective) {
    case kBlackout: return blackout_word(z_target, z, odds, n, padded, copies, out);
    case kBlackoutNoise: return blackout_noise_word(z_target, z, n, padded, copies, out);
    case kSampled: return sampled_word(z_target, z, n, padded, copies, out);
    default: return nce_word(z_target, z, n, copies, out);
  }
}
