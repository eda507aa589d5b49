// BlackOut over columns that lie on several ranks, of which these are one's own
// (output/divided/rounds.py has the formulas): what a word's columns tell the other ranks, and what
// becomes of their answers. Exponentials are made once, relative to the largest z without one copy
// of the largest of all, the top; numbers about that one are made by the caller, one for each word.

// Which copies count for a word: those of its group, less one of the column that its target replaces.
inline const float *copies_of(const RoundArgs &a, i64 word) {
  return a.copies + word / a.group_words * a.columns;
}
inline i64 replaced_of(const RoundArgs &a, i64 word) { return a.replaced ? a.replaced[word] : -1; }

// Logits to exponentials; the largest z, its column and how many copies of it are left besides one,
// and maximum and sum of the rest.
void round_one(const RoundArgs &a, i64 begin, i64 end, float *scratch) {
  const i64 n = a.columns, padded = (n + kLanes - 1) / kLanes * kLanes;
  float *z = scratch, *copies = scratch + padded;
  for (i64 word = begin; word < end; ++word) {
    const i64 replaced = replaced_of(a, word);
    typed(a.logits, [&](const auto *logits) {
      fill_z(logits + word * n, a.offset + word / a.group_words * n, nullptr, -1, n, padded, z);
    });
    fill_copies(copies_of(a, word), n, padded, copies);
    if (replaced >= 0) copies[replaced] -= 1.0f;
    leave_out_missing(copies, padded, z);
    const Top best = top_two(z, padded);
    const i64 top = place_of(best.first, z, padded);
    const float left = copies[top] > 1.0f ? copies[top] - 1.0f : 0.0f;
    const bool alone = !(left > 0.0f);
    if (alone) z[top] = kMinusInfinity;
    const float peak = alone ? best.second : best.first;
    const float shift = peak > kMinusInfinity ? peak : 0.0f;
    const float rest = exponentials(z, padded, shift, Merged{copies}) - (alone ? 0.0f : 1.0f);
    sweep(n, [&](i64 k, auto part) { part.put(a.e + word * n + k, load(z + k)); });
    a.peak[word] = peak;
    a.rest[word] = rest;
    a.top_z[word] = best.first;
    a.left[word] = left;
    a.top[word] = top < n ? top : 0;
  }
}

// Sums of odds p / (1 - p) and of -log(1 - p) over all copies, p = e * to_p.
void round_two(const RoundArgs &a, i64 begin, i64 end) {
  const i64 n = a.columns;
  for (i64 word = begin; word < end; ++word) {
    const float *e = a.e + word * n, *copies = copies_of(a, word);
    const float to_p = a.to_p[word];
    vf odds{}, miss{};
    sweep(n, [&](i64 k, auto part) {
      const vf p = part.at(e + k) * to_p, r = p / (1.0f - p), m = part.at(copies + k);
      odds += m * r;
      miss += m * log1p_unit(r);
    });
    float less = 0;
    if (const i64 replaced = replaced_of(a, word); replaced >= 0) {
      const float p = e[replaced] * to_p;
      less = p / (1.0f - p);
    }
    a.odds[word] = sum(odds) - less;
    a.miss[word] = sum(miss) - __builtin_log1pf(less);
  }
}

// Derivatives of all columns, the top's as the caller has made it.
void round_three(const RoundArgs &a, i64 begin, i64 end) {
  const i64 n = a.columns;
  for (i64 word = begin; word < end; ++word) {
    const float *e = a.e + word * n, *copies = copies_of(a, word);
    const float to_p = a.to_p[word], to_share = a.to_share[word], above = a.odds_sum[word] - 2.0f;
    typed(a.derivatives, [&](auto *derivatives) {
      auto *out = derivatives + word * n;
      const auto derivative = [&](auto x) {
        const auto p = x * to_p;
        return p * (above - p / (1.0f - p)) + x * to_share;
      };
      const i64 replaced = replaced_of(a, word);
      const float one = replaced >= 0 ? derivative(e[replaced]) * (copies[replaced] - 1.0f) : 0.0f;
      sweep(n, [&](i64 k, auto part) {
        part.put(out + k, part.at(copies + k) * derivative(part.at(e + k)));
      });
      if (replaced >= 0) set(out + replaced, one);
      set(out + a.top[word], a.d_top[word]);
    });
  }
}
