// The output layer around its matrix products.

template <class From, class To> inline void copy_row(const From *from, To *to, i64 size) {
  sweep(size, [&](i64 i, auto part) { part.put(to + i, part.at(from + i)); });
}

void gather(const GatherArgs &a, i64 begin, i64 end) {
  typed(a.table, [&](auto *table) {
    typed(a.out, [&](auto *out) {
      for (i64 i = begin; i < end; ++i) {
        if (i + kAhead < end) prefetch_row(table + a.rows[i + kAhead] * a.size, a.size);
        copy_row(table + a.rows[i] * a.size, out + i * a.size, a.size);
      }
    });
  });
}

template <class T> inline float dot(const float *x, const T *y, i64 size) {
  vf total{};
  sweep(size, [&](i64 i, auto part) { total += part.at(x + i) * part.at(y + i); });
  return sum(total);
}

// z of the samples of one word; copies of `target`, where it is not -1, do not count.
template <class T>
inline void fill_z(const T *u, const float *offset, const i64 *sample, i64 target, i64 n, i64 padded,
                   float *z) {
  sweep(n, [&](i64 k, auto part) { part.put(z + k, part.at(u + k) - part.at(offset + k)); });
  for (i64 k = n; k < padded; ++k) z[k] = kMinusInfinity;
  if (target < 0) return;
  i64 copies = 0;
  for (i64 k = 0; k < n; ++k) copies += sample[k] == target;
  for (i64 k = 0; copies > 0; ++k) {
    if (sample[k] != target) continue;
    z[k] = kMinusInfinity;
    --copies;
  }
}

// The multiplicities of a group, padded; columns without copies do not count.
inline void fill_copies(const float *multiplicity, i64 n, i64 padded, float *copies) {
  sweep(n, [&](i64 k, auto part) { part.put(copies + k, part.at(multiplicity + k)); });
  for (i64 k = n; k < padded; ++k) copies[k] = 0;
}
inline void leave_out_missing(const float *copies, i64 padded, float *z) {
  for (i64 k = 0; k < padded; k += kLanes)
    store(z + k, load(copies + k) > 0.0f ? load(z + k) : splat(kMinusInfinity));
}

void words(const WordArgs &a, i64 begin, i64 end, float *scratch) {
  const i64 k = a.samples, padded = (k + kLanes - 1) / kLanes * kLanes;
  float *z = scratch, *odds = scratch + padded, *copies = scratch + 2 * padded;
  i64 filled = -1;  // the group whose copies are there
  for (i64 word = begin; word < end; ++word) {
    const i64 group = word / a.group_words, target = a.target[word];
    float u_target = 0;
    typed(a.table, [&](const auto *table) {
      u_target = dot(a.hidden + word * a.size, table + target * a.size, a.size);
    });
    typed(a.logits, [&](const auto *logits) {
      fill_z(logits + word * k, a.sample_offset + group * k, a.sample + group * k,
             a.keep_copies ? -1 : target, k, padded, z);
    });
    typed(a.derivatives, [&](auto *derivatives) {
      auto *d = derivatives + word * k;
      const float z_target = u_target - a.target_offset[word];
      WordResult result;
      if (a.multiplicity) {
        if (group != filled) fill_copies(a.multiplicity + group * k, k, padded, copies);
        filled = group;
        leave_out_missing(copies, padded, z);
        result = word_objective(a.objective, z_target, z, odds, k, padded, Merged{copies}, d);
      } else {
        result = word_objective(a.objective, z_target, z, odds, k, padded, Once{}, d);
      }
      a.value[word] = result.value;
      a.d_target[word] = result.d_target;
    });
  }
}

void scale_hidden(const ScaleArgs &a, i64 begin, i64 end) {
  typed(a.scaled, [&](auto *scaled) {
    typed(a.target_rows, [&](auto *target_rows) {
      for (i64 word = begin; word < end; ++word) {
        const float factor = a.factor[word], d_target = a.d_target[word];
        const i64 row = word * a.size;
        sweep(a.size, [&](i64 i, auto part) {
          const vf x = part.at(a.hidden + row + i) * factor;
          part.put(scaled + row + i, x);
          part.put(target_rows + row + i, x * d_target);
        });
      }
    });
  });
}

void hidden_gradient(const HiddenGradientArgs &a, i64 begin, i64 end) {
  typed(a.product, [&](const auto *product) {
    typed(a.table, [&](const auto *table) {
      for (i64 word = begin; word < end; ++word) {
        const float factor = a.factor[word], d_target = a.d_target[word];
        const auto *target = table + a.target[word] * a.size;
        const i64 row = word * a.size;
        sweep(a.size, [&](i64 i, auto part) {
          const vf x = part.at(product + row + i) + part.at(target + i) * d_target;
          part.put(a.out + row + i, x * factor);
        });
      }
    });
  });
}

void convert(const ConvertArgs &a, i64 begin, i64 end) {
  typed(a.from, [&](const auto *from) {
    typed(a.to, [&](auto *to) { copy_row(from + begin, to + begin, end - begin); });
  });
}

void log_sum(const LogSumArgs &a, i64 begin, i64 end) {
  typed(a.logits, [&](const auto *logits) {
    for (i64 word = begin; word < end; ++word) {
      const auto *u = logits + word * a.size;
      vf best = splat(a.maximum[word]);
      sweep(a.size, [&](i64 i, auto part) {
        vf x = part.at(u + i, kMinusInfinity);
        if (a.bias) x += part.at(a.bias + i);
        best = larger(x, best);
      });
      const float top = maximum(best);
      const float shift = top > kMinusInfinity ? top : 0.0f;
      vf total{};
      sweep(a.size, [&](i64 i, auto part) {
        vf x = part.at(u + i, kMinusInfinity);
        if (a.bias) x += part.at(a.bias + i);
        total += exponential(x - shift);
      });
      a.total[word] = a.total[word] * exp1(a.maximum[word] - shift) + sum(total);
      a.maximum[word] = top;
    }
  });
}
