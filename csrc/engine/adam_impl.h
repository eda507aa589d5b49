// Adam, lazily: the moments of the touched rows, and a step along the first of them.

// One row: m <- momentum m + (1 - momentum) g, v as RMSProp has it, and the step goes along m.
template <class G, class W>
inline void adam_full(const RmsPropArgs &s, float momentum, float aging, const G *g,
                      const W *weight, float *mean, float *moment, float *result, i64 size) {
  const float fresh = 1.0f - s.beta, newer = 1.0f - momentum, kept = 1.0f - s.shrink;
  sweep(size, [&](i64 i, auto part) {
    const vf x = part.at(g + i) * s.factor;
    const vf m = part.at(mean + i) * momentum + x * newer;
    const vf v = part.at(moment + i) * aging + (x * x) * fresh;
    part.put(mean + i, m);
    part.put(moment + i, v);
    part.put(result + i, part.at(weight + i) * kept - m * s.lr * inverse_step(s, v));
  });
}

// One row with one second moment, the mean over its numbers.
template <class G, class W>
inline void adam_row(const RmsPropArgs &s, float momentum, float aging, const G *g,
                     const W *weight, float *mean, float *moment, float *result, i64 size) {
  const float v = *moment * aging + row_mean_square(g, size, s.factor) * (1.0f - s.beta);
  *moment = v;
  const float rate = s.lr * inverse_step(s, splat(v))[0], kept = 1.0f - s.shrink;
  const float newer = (1.0f - momentum) * s.factor;
  sweep(size, [&](i64 i, auto part) {
    const vf m = part.at(mean + i) * momentum + part.at(g + i) * newer;
    part.put(mean + i, m);
    part.put(result + i, part.at(weight + i) * kept - m * rate);
  });
}

void adam_rows(const AdamArgs &a, i64 begin, i64 end, float *scratch) {
  const RmsPropArgs &s = a.update.settings;
  const i64 size = a.update.gradient.size;
  for_each_row(a.update, begin, end, scratch,
               [&](i64 index, i64 row, float aging, const auto *g, const auto *weight,
                   float *moment, float *result) {
                 const float momentum = a.momenta ? a.momenta[index] : a.momentum;
                 float *mean = a.mean + row * size;
                 if (s.row_moment)
                   adam_row(s, momentum, aging, g, weight, mean, moment, result, size);
                 else
                   adam_full(s, momentum, aging, g, weight, mean, moment, result, size);
               });
}

// A dense parameter: numbers begin … end-1 of gradient, weight and moments.
void adam_dense(const AdamArgs &a, i64 begin, i64 end) {
  float *weight = static_cast<float *>(a.update.table.data) + begin;
  typed(a.update.gradient.values, [&](const auto *g) {
    adam_full(a.update.settings, a.momentum, a.update.settings.aging, g + begin, weight,
              a.mean + begin, a.update.moment + begin, weight, end - begin);
  });
}
