// Row-sparse RMSProp: duplicates summed, norms, and the update of the touched rows.

constexpr i64 kAheadPlaces = 6;  // occurrences

// One occurrence of a row in the gradient; a later one is fetched early.
template <class T>
inline const T *occurrence(const RowGradient &g, const T *values, i64 place, i64 last) {
  if (place + kAheadPlaces < last)
    prefetch_row(values + g.order[place + kAheadPlaces] * g.size, g.size);
  return values + g.order[place] * g.size;
}

// The gradient of row number `index`: `scratch` filled with the sum over its occurrences, in the
// order they came. `last` is where the occurrences of all rows end.
template <class T>
inline void sum_occurrences(const RowGradient &g, const T *values, i64 index, i64 last,
                            float *scratch) {
  const i64 first = g.start[index], end = g.start[index + 1];
  copy_row(occurrence(g, values, first, last), scratch, g.size);
  for (i64 place = first + 1; place < end; ++place) {
    const T *more = occurrence(g, values, place, last);
    sweep(g.size, [&](i64 i, auto part) {
      part.put(scratch + i, part.at(scratch + i) + part.at(more + i));
    });
  }
}

// Calls body with the gradient of row `index`, in place where it occurs once.
template <class F>
inline void with_row(const RowGradient &g, i64 index, i64 last, float *scratch, F &&body) {
  typed(g.values, [&](const auto *values) {
    if (g.start[index + 1] - g.start[index] == 1) {
      body(occurrence(g, values, g.start[index], last));
    } else {
      sum_occurrences(g, values, index, last, scratch);
      body(static_cast<const float *>(scratch));
    }
  });
}

void sum_rows(const RowGradient &g, float *out, i64 begin, i64 end) {
  typed(g.values, [&](const auto *values) {
    for (i64 index = begin; index < end; ++index)
      sum_occurrences(g, values, index, g.start[end], out + index * g.size);
  });
}

// Four sums side by side: one alone would wait for itself.
template <class T> inline float squares(const T *x, i64 size) {
  vf total[4] = {};
  i64 done = 0;
  for (; done + 4 * kLanes <= size; done += 4 * kLanes)
    for (int i = 0; i < 4; ++i) {
      const vf v = load(x + done + i * kLanes);
      total[i] += v * v;
    }
  sweep(size - done, [&](i64 i, auto part) {
    const vf v = part.at(x + done + i);
    total[0] += v * v;
  });
  return sum((total[0] + total[1]) + (total[2] + total[3]));
}

void squared_norms(const RowGradient &g, double *out, i64 begin, i64 end, float *scratch) {
  if (g.size == 1 && g.start[end] - g.start[begin] == end - begin) {  // numbers that occur once
    typed(g.values, [&](const auto *values) {
      for (i64 index = begin; index < end; ++index) {
        const float x = as_float(values[g.order[g.start[index]]]);
        out[index] = static_cast<double>(x * x);
      }
    });
    return;
  }
  for (i64 index = begin; index < end; ++index) {
    with_row(g, index, g.start[end], scratch,
             [&](const auto *x) { out[index] = static_cast<double>(squares(x, g.size)); });
  }
}

double sum_of_squares(Numbers values, i64 begin, i64 end) {
  double result = 0;
  typed(values, [&](const auto *x) { result = static_cast<double>(squares(x + begin, end - begin)); });
  return result;
}

// Rounds to a bfloat16 up or down with the chance that makes the mean exact: 16 random bits, of
// which four numbers share one 64-bit draw, are added below the kept ones.
inline void store_rounded(bf16 *to, const float *from, i64 size, u64 key, i64 row) {
  const i64 draws = (size + 3) / 4;
  for (i64 draw = 0; draw < draws; ++draw) {
    const u64 random = mix64(key + static_cast<u64>(row * draws + draw + 1) * kGolden);
    const i64 last = draw * 4 + 4 < size ? draw * 4 + 4 : size;
    for (i64 i = draw * 4; i < last; ++i) {
      uint32_t bits;
      __builtin_memcpy(&bits, from + i, 4);
      const uint32_t noise = static_cast<uint32_t>(random >> (16 * (i & 3))) & 0xffffu;
      const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
      to[i] = static_cast<bf16>((finite ? bits + noise : bits | ((bits & 0xffffu) ? 0x400000u : 0u)) >> 16);
    }
  }
}

constexpr float kTiny = 1.17549435e-38f;

// 1 / sqrt(v + damping); a moment of 0 means that g is 0 too.
inline vf inverse_step(const RmsPropArgs &s, vf v) {
  return inverse_root(larger(v + s.damping, splat(kTiny)));
}

template <class T> inline float row_mean_square(const T *g, i64 size, float factor) {
  return squares(g, size) * factor * factor / static_cast<float>(size);
}

// One row with a second moment for each number: `result` takes the new weights.
template <class G, class W>
inline void update_full(const RmsPropArgs &s, float aging, const G *g, const W *weight,
                        float *moment, float *result, i64 size) {
  const float fresh = 1.0f - s.beta, kept = 1.0f - s.shrink;
  sweep(size, [&](i64 i, auto part) {
    const vf x = part.at(g + i) * s.factor;
    const vf v = part.at(moment + i) * aging + (x * x) * fresh;
    part.put(moment + i, v);
    part.put(result + i, part.at(weight + i) * kept - x * s.lr * inverse_step(s, v));
  });
}

// One row with one second moment, the mean over its numbers.
template <class G, class W>
inline void update_row(const RmsPropArgs &s, float aging, const G *g, const W *weight,
                       float *moment, float *result, i64 size) {
  const float v = *moment * aging + row_mean_square(g, size, s.factor) * (1.0f - s.beta);
  *moment = v;
  const float rate = s.factor * s.lr * inverse_step(s, splat(v))[0], kept = 1.0f - s.shrink;
  sweep(size, [&](i64 i, auto part) {
    part.put(result + i, part.at(weight + i) * kept - part.at(g + i) * rate);
  });
}

template <class G, class W>
inline void update_one(const RmsPropArgs &s, float aging, const G *g, const W *weight,
                       float *moment, float *result, i64 size) {
  if (s.row_moment)
    update_row(s, aging, g, weight, moment, result, size);
  else
    update_full(s, aging, g, weight, moment, result, size);
}

// All that the update of row number `index` will read.
inline void prefetch_update(const UpdateArgs &a, i64 index, i64 moment_size) {
  const RowGradient &g = a.gradient;
  const i64 row = g.rows[index];
  prefetch_row(a.moment + row * moment_size, moment_size);
  typed(a.table, [&](const auto *table) { prefetch_row(table + row * g.size, g.size); });
}

// Calls one(index, row, aging, gradient, weight, moment, result) for the rows of a gradient: `result`
// takes the new weights of the row.
template <class F>
inline void for_each_row(const UpdateArgs &a, i64 begin, i64 end, float *scratch, F &&one) {
  const RowGradient &g = a.gradient;
  const RmsPropArgs &s = a.settings;
  const i64 moment_size = s.row_moment ? 1 : g.size;
  float *rounded = scratch + g.size;
  for (i64 index = begin; index < end; ++index) {
    const i64 row = g.rows[index];
    const float aging = s.agings ? s.agings[index] : s.aging;
    float *moment = a.moment + row * moment_size;
    if (index + kAhead < end) prefetch_update(a, index + kAhead, moment_size);
    with_row(g, index, g.start[end], scratch, [&](const auto *x) {
      if (a.table.half) {
        bf16 *weight = static_cast<bf16 *>(a.table.data) + row * g.size;
        one(index, row, aging, x, weight, moment, rounded);
        store_rounded(weight, rounded, g.size, s.rounding, s.numbers ? s.numbers[index] : row);
      } else {
        float *weight = static_cast<float *>(a.table.data) + row * g.size;
        one(index, row, aging, x, weight, moment, weight);
      }
    });
  }
}

// Rows of one float32 number each that occur once: kLanes of them at a time, as one row would be.
template <class G> void update_numbers(const UpdateArgs &a, const G *values, i64 begin, i64 end) {
  const RowGradient &g = a.gradient;
  const RmsPropArgs &s = a.settings;
  float *weights = static_cast<float *>(a.table.data);
  const float fresh = 1.0f - s.beta, kept = 1.0f - s.shrink;
  for (i64 index = begin; index < end; index += kLanes) {
    const i64 n = end - index < kLanes ? end - index : kLanes;
    float gradient[kLanes] = {}, aging[kLanes] = {}, moment[kLanes] = {}, weight[kLanes] = {};
    for (i64 i = 0; i < n; ++i) {
      const i64 row = g.rows[index + i];
      gradient[i] = as_float(values[g.order[g.start[index + i]]]);
      aging[i] = s.agings ? s.agings[index + i] : s.aging;
      moment[i] = a.moment[row];
      weight[i] = weights[row];
    }
    const vf x = load(gradient) * s.factor;
    const vf v = load(moment) * load(aging) + (x * x) * fresh;
    store(moment, v);
    store(weight, load(weight) * kept - x * s.lr * inverse_step(s, v));
    for (i64 i = 0; i < n; ++i) {
      const i64 row = g.rows[index + i];
      a.moment[row] = moment[i];
      weights[row] = weight[i];
    }
  }
}

void update_rows(const UpdateArgs &a, i64 begin, i64 end, float *scratch) {
  const bool once = a.gradient.start[end] - a.gradient.start[begin] == end - begin;
  if (a.gradient.size == 1 && once && !a.table.half) {
    typed(a.gradient.values, [&](const auto *values) { update_numbers(a, values, begin, end); });
    return;
  }
  for_each_row(a, begin, end, scratch,
               [&](i64, i64, float aging, const auto *g, const auto *weight, float *moment,
                   float *result) {
                 update_one(a.settings, aging, g, weight, moment, result, a.gradient.size);
               });
}

// A dense parameter: numbers begin … end-1 of gradient, weight and moment.
void update_dense(const UpdateArgs &a, i64 begin, i64 end) {
  float *weight = static_cast<float *>(a.table.data) + begin;
  typed(a.gradient.values, [&](const auto *g) {
    update_full(a.settings, a.settings.aging, g + begin, weight, a.moment + begin, weight,
                end - begin);
  });
}
