// The pointwise part of one time step of a recurrent layer, for all cells, forward and backward
// (ops/reference/recurrent.py has the formulas).

// The state after a step: as it is, and as the next step takes it.
template <class Half, class Next, class P>
inline void put_state(const CellArgs &a, i64 stream, i64 i, vf s, float keep, Half *hidden,
                      Next *operand, const P &part) {
  const i64 at = stream * a.size + i;
  part.put(a.output + at, s);
  if (hidden) part.put(hidden + at, s);
  if (operand) part.put(operand + at, s * keep);
}

struct Biases {
  const float *input, *recurrent;
  template <class P> vf of_input(const P &part, i64 i) const {
    return input ? part.at(input + i) : vf{};
  }
  template <class P> vf of_product(const P &part, i64 i) const {
    return recurrent ? part.at(recurrent + i) : vf{};
  }
};

template <class Half, class Next>
inline void simple_forward(const CellArgs &a, i64 stream, float keep, Half *hidden, Next *operand) {
  const Biases bias{a.input_bias, a.recurrent_bias};
  const float *x = a.gates + stream * a.size, *p = a.product + stream * a.size;
  sweep(a.size, [&](i64 i, auto part) {
    const vf s = activate(a.cell, part.at(x + i) + bias.of_input(part, i) + part.at(p + i) +
                                      bias.of_product(part, i));
    put_state(a, stream, i, s, keep, hidden, operand, part);
  });
}

// c = f c + i g,  s = o tanh(c); gates in the order i, f, g, o.
template <class Half, class Next>
inline void lstm_forward(const CellArgs &a, i64 stream, float keep, Half *hidden, Next *operand) {
  const Biases bias{a.input_bias, a.recurrent_bias};
  const i64 h = a.size, row = stream * h;
  float *gates = a.gates + 4 * row;
  const float *product = a.product + 4 * row;
  sweep(h, [&](i64 i, auto part) {
    const auto pre = [&](i64 at) {
      return part.at(gates + at) + bias.of_input(part, at) + part.at(product + at) +
             bias.of_product(part, at);
    };
    const vf in = activate(kSigmoid, pre(i)), forget = activate(kSigmoid, pre(h + i));
    const vf candidate = activate(kTanh, pre(2 * h + i)), out = activate(kSigmoid, pre(3 * h + i));
    const vf cell = forget * part.at(a.before + row + i) + in * candidate;
    const vf inner = activate(kTanh, cell);
    part.put(gates + i, in);
    part.put(gates + h + i, forget);
    part.put(gates + 2 * h + i, candidate);
    part.put(gates + 3 * h + i, out);
    part.put(a.inner + row + i, inner);
    part.put(a.before_next + row + i, cell * keep);
    put_state(a, stream, i, out * inner, keep, hidden, operand, part);
  });
}

// s = (1 - z) n + z s,  n = tanh(x_n + r (W_n s + b_n)); gates in the order r, z, n.
template <class Half, class Next>
inline void gru_forward(const CellArgs &a, i64 stream, float keep, Half *hidden, Next *operand) {
  const Biases bias{a.input_bias, a.recurrent_bias};
  const i64 h = a.size, row = stream * h;
  float *gates = a.gates + 3 * row;
  const float *product = a.product + 3 * row;
  sweep(h, [&](i64 i, auto part) {
    const auto x = [&](i64 at) { return part.at(gates + at) + bias.of_input(part, at); };
    const auto p = [&](i64 at) { return part.at(product + at) + bias.of_product(part, at); };
    const vf reset = activate(kSigmoid, x(i) + p(i)), update = activate(kSigmoid, x(h + i) + p(h + i));
    const vf inner = p(2 * h + i);
    const vf candidate = activate(kTanh, x(2 * h + i) + reset * inner);
    const vf s = candidate + update * (part.at(a.before + row + i) - candidate);
    part.put(gates + i, reset);
    part.put(gates + h + i, update);
    part.put(gates + 2 * h + i, candidate);
    part.put(a.inner + row + i, inner);
    part.put(a.before_next + row + i, s * keep);
    put_state(a, stream, i, s, keep, hidden, operand, part);
  });
}

void cell_forward(const CellArgs &a, i64 begin, i64 end) {
  typed(a.hidden, [&](auto *hidden) {
    typed(a.operand, [&](auto *operand) {
      for (i64 stream = begin; stream < end; ++stream) {
        const float keep = a.keep_next ? a.keep_next[stream] : 1.0f;
        if (a.cell == kLstm)
          lstm_forward(a, stream, keep, hidden, operand);
        else if (a.cell == kGru)
          gru_forward(a, stream, keep, hidden, operand);
        else
          simple_forward(a, stream, keep, hidden, operand);
      }
    });
  });
}

// The gradient of s_t: from above, and what comes back from the step after.
template <class P> inline vf state_gradient(const CellBackArgs &a, i64 at, float keep, const P &part) {
  const vf g = part.at(a.d_output + at);
  return a.last ? g : g + part.at(a.carry + at) * keep;
}

template <class T> inline void simple_back(const CellBackArgs &a, i64 stream, float keep, T *delta) {
  const i64 row = stream * a.size;
  sweep(a.size, [&](i64 i, auto part) {
    const vf g = state_gradient(a, row + i, keep, part);
    part.put(delta + row + i, g * slope(a.cell, part.at(a.output + row + i)));
  });
}

template <class T> inline void lstm_back(const CellBackArgs &a, i64 stream, float keep, T *delta) {
  const i64 h = a.size, row = stream * h;
  const float *gates = a.gates + 4 * row;
  T *to = delta + 4 * row;
  sweep(h, [&](i64 i, auto part) {
    const vf in = part.at(gates + i), forget = part.at(gates + h + i);
    const vf candidate = part.at(gates + 2 * h + i), out = part.at(gates + 3 * h + i);
    const vf inner = part.at(a.inner + row + i);
    const vf g = state_gradient(a, row + i, keep, part);
    vf d_cell = g * out * (1.0f - inner * inner);
    if (!a.last) d_cell += part.at(a.carry_cell + row + i) * keep;
    part.put(to + i, d_cell * candidate * (in * (1.0f - in)));
    part.put(to + h + i, d_cell * part.at(a.before + row + i) * (forget * (1.0f - forget)));
    part.put(to + 2 * h + i, d_cell * in * (1.0f - candidate * candidate));
    part.put(to + 3 * h + i, g * inner * (out * (1.0f - out)));
    part.put(a.carry_cell + row + i, d_cell * forget);
  });
}

// The candidate's product is behind the reset gate, so it has its own gradient; `carry` takes the
// direct way to the state before.
template <class T>
inline void gru_back(const CellBackArgs &a, i64 stream, float keep, T *delta, T *products) {
  const i64 h = a.size, row = stream * h;
  const float *gates = a.gates + 3 * row;
  T *to = delta + 3 * row, *of_product = products + 3 * row;
  sweep(h, [&](i64 i, auto part) {
    const vf reset = part.at(gates + i), update = part.at(gates + h + i);
    const vf candidate = part.at(gates + 2 * h + i);
    const vf g = state_gradient(a, row + i, keep, part);
    const vf d_candidate = g * (1.0f - update) * (1.0f - candidate * candidate);
    const vf d_reset = d_candidate * part.at(a.inner + row + i) * (reset * (1.0f - reset));
    const vf d_update = g * (part.at(a.before + row + i) - candidate) * (update * (1.0f - update));
    part.put(to + i, d_reset);
    part.put(to + h + i, d_update);
    part.put(to + 2 * h + i, d_candidate);
    part.put(of_product + i, d_reset);
    part.put(of_product + h + i, d_update);
    part.put(of_product + 2 * h + i, d_candidate * reset);
    part.put(a.carry + row + i, g * update);
  });
}

void cell_backward(const CellBackArgs &a, i64 begin, i64 end) {
  typed(a.delta, [&](auto *delta) {
    auto *products = static_cast<decltype(delta)>(a.products);
    for (i64 stream = begin; stream < end; ++stream) {
      const float keep = a.keep_next ? a.keep_next[stream] : 1.0f;
      if (a.cell == kLstm)
        lstm_back(a, stream, keep, delta);
      else if (a.cell == kGru)
        gru_back(a, stream, keep, delta, products);
      else
        simple_back(a, stream, keep, delta);
    }
  });
}

// out[j] = sum over rows i of factor[i] * values(i, j), for columns begin … end-1.
void column_sums(const ColumnSumArgs &a, i64 begin, i64 end) {
  typed(a.values, [&](const auto *values) {
    sweep(end - begin, [&](i64 j, auto part) {
      vf total{};
      for (i64 i = 0; i < a.rows; ++i) {
        const vf x = part.at(values + i * a.columns + begin + j);
        total += a.factor ? x * a.factor[i] : x;
      }
      part.put(a.out + begin + j, total);
    });
  });
}

constexpr i64 kNoises = 64, kShare = 4;  // numbers made at once; those that share 64 random bits

// What dropout multiplies numbers 64 b … 64 b + 63 by. One short loop after another, of numbers that
// nothing else can change, so that the compiler makes vectors of them.
inline void fill_noise(const DropArgs &a, i64 b, float *noise) {
  const u64 first = a.key + static_cast<u64>(b * (kNoises / kShare)) * kGolden;
  const uint32_t kept = static_cast<uint32_t>(a.kept);
  const float scale = a.scale;
  u64 bits[kNoises / kShare];
  for (u64 i = 0; i < kNoises / kShare; ++i) bits[i] = mix64(first + i * kGolden);
  uint16_t parts[kNoises];
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  __builtin_memcpy(parts, bits, sizeof bits);
#else
  for (i64 i = 0; i < kNoises; ++i)
    parts[i] = static_cast<uint16_t>(bits[i / kShare] >> (16 * (i % kShare)));
#endif
  for (i64 i = 0; i < kNoises; ++i) noise[i] = parts[i] < kept ? scale : 0.0f;
}

void drop(const DropArgs &a, i64 begin, i64 end) {
  float noise[kNoises];
  typed(a.values, [&](const auto *values) {
    typed(a.out, [&](auto *out) {
      typed(a.also, [&](auto *also) {
        for (i64 at = begin; at < end;) {
          const i64 base = at / kNoises * kNoises;
          const i64 stop = base + kNoises < end ? base + kNoises : end;
          fill_noise(a, base / kNoises, noise);
          sweep(stop - at, [&](i64 i, auto part) {
            const vf left = part.at(values + at + i) * part.at(noise + (at - base) + i);
            part.put(out + at + i, left);
            if (also) part.put(also + at + i, left);
          });
          at = stop;
        }
      });
    });
  });
}
