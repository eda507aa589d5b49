// Log-probabilities along the paths of a tree, and their gradients (ops/tree.py has the equation).
//
// An entry is a vector of a node on the path of a word; the entries of a word lie together, those of
// one node, a choice, too.

// u of n entries, whose vectors are rows of the table: four at a time share the loads of the state.
template <class T>
inline void entry_logits(const float *state, const T *table, const int32_t *row, i64 n, i64 size,
                         float *u) {
  i64 e = 0;
  for (; e + 4 <= n; e += 4) {
    const T *a = table + row[e] * size, *b = table + row[e + 1] * size;
    const T *c = table + row[e + 2] * size, *d = table + row[e + 3] * size;
    vf u0{}, u1{}, u2{}, u3{};
    sweep(size, [&](i64 i, auto part) {
      const vf x = part.at(state + i);
      u0 += x * part.at(a + i);
      u1 += x * part.at(b + i);
      u2 += x * part.at(c + i);
      u3 += x * part.at(d + i);
    });
    u[e] = sum(u0), u[e + 1] = sum(u1), u[e + 2] = sum(u2), u[e + 3] = sum(u3);
  }
  for (; e < n; ++e) u[e] = dot(state, table + row[e] * size, size);
}

// Two children each: log sigma(sign u) of all choices; u <- sign sigma(-sign u), the derivatives.
inline float binary_choices(float *u, const float *sign, i64 n) {
  vf total{};
  sweep(n, [&](i64 i, auto part) {
    const vf s = part.at(sign + i), x = part.at(u + i) * s;
    const vf e = exponential(x < 0.0f ? x : -x);
    const vf log_p = (x < 0.0f ? x : vf{}) - log1p_unit(e);
    total += s != 0.0f ? log_p : vf{};  // behind the end there is nothing
    part.put(u + i, s * (x > 0.0f ? e : splat(1.0f)) / (1.0f + e));
  });
  return sum(total);
}

// A choice among n + 1 children, the first of which has the logit 0: its log-probability;
// u <- derivatives.
inline float choice(float *u, i64 n, i64 place) {
  const float taken = place ? u[place - 1] : 0.0f;
  vf best{};
  sweep(n, [&](i64 i, auto part) { best = larger(part.at(u + i, kMinusInfinity), best); });
  const float top = maximum(best);
  vf sums{};
  sweep(n, [&](i64 i, auto part) {
    const vf e = exponential(part.at(u + i, kMinusInfinity) - top);
    sums += e;
    part.put(u + i, e);
  });
  const float total = sum(sums) + exp1(-top), scale = -1.0f / total;
  sweep(n, [&](i64 i, auto part) { part.put(u + i, part.at(u + i) * scale); });
  if (place) u[place - 1] += 1.0f;
  return taken - top - log1(total);
}

// sum of factor[e] * row[e]: 4 vectors of the result stay in registers.
template <class T>
inline void add_entries(const float *factor, const T *table, const int32_t *row, i64 n, i64 size,
                        float *out) {
  i64 i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    vf a{}, b{}, c{}, d{};
    for (i64 e = 0; e < n; ++e) {
      const T *x = table + row[e] * size + i;
      const vf f = splat(factor[e]);
      a += f * load(x);
      b += f * load(x + kLanes);
      c += f * load(x + 2 * kLanes);
      d += f * load(x + 3 * kLanes);
    }
    store(out + i, a), store(out + i + kLanes, b);
    store(out + i + 2 * kLanes, c), store(out + i + 3 * kLanes, d);
  }
  sweep(size - i, [&](i64 j, auto part) {
    vf a{};
    for (i64 e = 0; e < n; ++e) a += factor[e] * part.at(table + row[e] * size + i + j);
    part.put(out + i + j, a);
  });
}

// `numbers` and `rows` hold what the longest path has of entries (twice the numbers).
void paths(const PathArgs &a, i64 begin, i64 end, float *numbers, int32_t *rows) {
  float *const u = numbers, *const sign = numbers + a.longest;
  for (i64 word = begin; word < end; ++word) {
    i64 entries = 0, steps = 0;
    for (i64 at = a.target[word]; a.tree.up[at] >= 0; ++steps) {
      const i64 node = a.tree.up[at], first = a.tree.first[node];
      const i64 count = a.tree.first[node + 1] - first;
      if (a.step_node) {
        const i64 step = a.step_start[word] + steps;
        a.step_node[step] = node;
        a.step_word[step] = static_cast<int32_t>(word);
        a.step_entry[step] = a.entry_start[word] + entries;
      }
      if (count == 1) sign[entries] = a.tree.place[at] ? 1.0f : -1.0f;
      for (i64 i = 0; i < count; ++i) rows[entries++] = static_cast<int32_t>(first + i);
      at = a.tree.words + node;
    }
    const float *state = a.hidden + word * a.size;
    typed(a.table, [&](const auto *table) { entry_logits(state, table, rows, entries, a.size, u); });
    for (i64 e = 0; a.bias && e < entries; ++e) u[e] += a.bias[rows[e]];
    if (entries == steps) {
      a.value[word] = binary_choices(u, sign, entries);
    } else {
      float value = 0;
      i64 e = 0;
      for (i64 at = a.target[word]; a.tree.up[at] >= 0;) {
        const i64 node = a.tree.up[at], count = a.tree.first[node + 1] - a.tree.first[node];
        value += choice(u + e, count, a.tree.place[at]);
        e += count;
        at = a.tree.words + node;
      }
      a.value[word] = value;
    }
    if (!a.derivative) continue;
    copy_row(u, a.derivative + a.entry_start[word], entries);
    for (i64 e = 0; a.factor && e < entries; ++e) u[e] *= a.factor[word];
    typed(a.table, [&](const auto *table) {
      add_entries(u, table, rows, entries, a.size, a.d_hidden + word * a.size);
    });
  }
}

constexpr i64 kStepsTogether = 64;  // whose hidden states stay in cache for all vectors of a node

// Gradients of kRows vectors of one node, over steps first … last-1 of its list, 2 or 4 vectors of
// each in registers; `fresh`: they begin at 0.
template <int kRows>
inline void add_steps(const PathRowArgs &a, i64 row, i64 first, i64 last, i64 vector, float *out,
                      bool fresh) {
  constexpr int kWide = kRows == 1 ? 8 : 4;
  const float *factors[kStepsTogether], *states[kStepsTogether];
  float weights[kStepsTogether * kRows];
  const i64 n = last - first;
  for (i64 s = 0; s < n; ++s) {
    const i64 step = a.order[first + s], word = a.step_word[step];
    factors[s] = a.derivative + a.step_entry[step] + vector;
    states[s] = a.hidden + word * a.size;
    for (int r = 0; r < kRows; ++r) weights[s * kRows + r] = factors[s][r] * a.factor[word];
  }
  for (int r = 0; r < kRows; ++r) {
    float total = fresh ? 0.0f : a.bias_values[row + r];
    for (i64 s = 0; s < n; ++s) total += weights[s * kRows + r];
    a.bias_values[row + r] = total;
  }
  i64 i = 0;
  for (; i + kWide * kLanes <= a.size; i += kWide * kLanes) {
    vf sums[kRows][kWide];
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kWide; ++v)
        sums[r][v] = fresh ? vf{} : load(out + r * a.size + i + v * kLanes);
    for (i64 s = 0; s < n; ++s)
      for (int v = 0; v < kWide; ++v) {
        const vf x = load(states[s] + i + v * kLanes);
        for (int r = 0; r < kRows; ++r) sums[r][v] += weights[s * kRows + r] * x;
      }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kWide; ++v) store(out + r * a.size + i + v * kLanes, sums[r][v]);
  }
  sweep(a.size - i, [&](i64 j, auto part) {
    for (int r = 0; r < kRows; ++r) {
      float *at = out + r * a.size + i + j;
      vf total = fresh ? vf{} : part.at(at);
      for (i64 s = 0; s < n; ++s) total += weights[s * kRows + r] * part.at(states[s] + i + j);
      part.put(at, total);
    }
  });
}

// Rows begin … end-1 of the gradient: those of the nodes' vectors, node after node.
void path_rows(const PathRowArgs &a, i64 begin, i64 end) {
  i64 node = 0;
  while (a.row_start[node + 1] <= begin) ++node;
  for (i64 row = begin; row < end; ++node) {
    const i64 stop = a.row_start[node + 1] < end ? a.row_start[node + 1] : end, from = row;
    for (i64 first = a.start[node]; first < a.start[node + 1]; first += kStepsTogether) {
      const i64 last = first + kStepsTogether < a.start[node + 1] ? first + kStepsTogether
                                                                 : a.start[node + 1];
      const bool fresh = first == a.start[node];
      for (row = from; row + 4 <= stop; row += 4)
        add_steps<4>(a, row, first, last, row - a.row_start[node], a.row_values + row * a.size, fresh);
      for (; row < stop; ++row)
        add_steps<1>(a, row, first, last, row - a.row_start[node], a.row_values + row * a.size, fresh);
    }
  }
}
