// The pointwise part of one time step, forward and backward.

inline vf activate(int activation, vf x) {
  if (activation == kRelu) return x > 0.0f ? x : vf{};
  if (activation == kTanh) return 1.0f - 2.0f / (exponential(x * 2.0f) + 1.0f);
  return 1.0f / (1.0f + exponential(-x));
}

// The derivative of the activation where its value is s.
inline vf slope(int activation, vf s) {
  if (activation == kRelu) return s > 0.0f ? splat(1.0f) : vf{};
  if (activation == kTanh) return 1.0f - s * s;
  return s * (1.0f - s);
}

// s = f(product + input); operand = s, or 0 where the next step must not use it.
void step_forward(const StepArgs &a, i64 begin, i64 end) {
  typed(a.product, [&](const auto *product) {
    typed(a.operand, [&](auto *operand) {
      for (i64 stream = begin; stream < end; ++stream) {
        const i64 row = stream * a.size;
        const float keep = a.keep ? a.keep[stream] : 1.0f;
        sweep(a.size, [&](i64 i, auto part) {
          const vf x = part.at(product + row + i) + part.at(a.input + row + i);
          const vf s = activate(a.activation, x);
          part.put(a.result + row + i, s);
          if (operand) part.put(operand + row + i, s * keep);
        });
      }
    });
  });
}

// result = (gradient of s_t + what comes back from the next step) * f'.
void step_backward(const StepArgs &a, i64 begin, i64 end) {
  typed(a.product, [&](const auto *product) {
    typed(a.operand, [&](auto *operand) {
      for (i64 stream = begin; stream < end; ++stream) {
        const i64 row = stream * a.size;
        const float keep = a.keep ? a.keep[stream] : 1.0f;
        sweep(a.size, [&](i64 i, auto part) {
          vf g = part.at(a.input + row + i);
          if (product) g += part.at(product + row + i) * keep;
          const vf delta = g * slope(a.activation, part.at(a.output + row + i));
          part.put(a.result + row + i, delta);
          if (operand) part.put(operand + row + i, delta);
        });
      }
    });
  });
}
