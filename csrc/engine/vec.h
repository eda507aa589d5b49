// Vectors of BLACKOUT_LANES floats, by the compiler's own vector types: the same source for every
// instruction set. Included inside the namespace of an instruction set (kernels_impl.h).
//
// No function here may be a plain template of the standard library: the linker would keep one copy
// for all instruction sets.

constexpr int kLanes = BLACKOUT_LANES;
typedef float vf __attribute__((vector_size(4 * BLACKOUT_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * BLACKOUT_LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * BLACKOUT_LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * BLACKOUT_LANES)));

constexpr float kMinusInfinity = -__builtin_inff();

inline vf splat(float x) { return x - vf{}; }

inline vf larger(vf a, vf b) { return a > b ? a : b; }

inline float widen(bf16 x) {
  uint32_t bits = static_cast<uint32_t>(x) << 16;
  float result;
  __builtin_memcpy(&result, &bits, 4);
  return result;
}

inline vf load(const float *p) {
  vf v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

inline vf load(const bf16 *p) {
  vh half;
  __builtin_memcpy(&half, p, sizeof half);
  vu bits = __builtin_convertvector(half, vu) << 16;
  return (vf)bits;
}

inline void store(float *p, vf v) { __builtin_memcpy(p, &v, sizeof v); }

// Nearest bfloat16, ties to even; a NaN stays one.
inline void store(bf16 *p, vf v) {
  vu bits = (vu)v;
  vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  vu kept_nan = (bits >> 16) | 0x40u;
  vu chosen = (bits & 0x7fffffffu) > 0x7f800000u ? kept_nan : rounded;
  vh half = __builtin_convertvector(chosen, vh);
  __builtin_memcpy(p, &half, sizeof half);
}

inline float as_float(float x) { return x; }
inline float as_float(bf16 x) { return widen(x); }

// The first n < kLanes numbers; the other lanes hold `fill`.
template <class T> inline vf load_part(const T *p, i64 n, float fill) {
  float part[kLanes];
  for (int i = 0; i < kLanes; ++i) part[i] = fill;
  for (i64 i = 0; i < n; ++i) part[i] = as_float(p[i]);
  return load(part);
}

inline void store_part(float *p, i64 n, vf v) {
  float part[kLanes];
  store(part, v);
  for (i64 i = 0; i < n; ++i) p[i] = part[i];
}
inline void store_part(bf16 *p, i64 n, vf v) {
  bf16 part[kLanes];
  store(part, v);
  for (i64 i = 0; i < n; ++i) p[i] = part[i];
}

inline void set(float *p, float x) { *p = x; }
inline void set(bf16 *p, float x) { store_part(p, 1, splat(x)); }

// body(i, part) for i = 0, kLanes, …: part.at reads kLanes numbers, part.put writes them; at the
// end of the range both handle fewer.
struct Whole {
  template <class T> vf at(const T *p, float = 0) const { return load(p); }
  template <class T> void put(T *p, vf v) const { store(p, v); }
};
struct Part {
  i64 n;
  template <class T> vf at(const T *p, float fill = 0) const { return load_part(p, n, fill); }
  template <class T> void put(T *p, vf v) const { store_part(p, n, v); }
};
template <class F> inline void sweep(i64 n, F &&body) {
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

// Lanes are added in a fixed tree.
inline float sum(vf v) {
  float part[kLanes];
  store(part, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  return part[0];
}

inline float maximum(vf v) {
  float part[kLanes];
  store(part, v);
  float best = part[0];
  for (int i = 1; i < kLanes; ++i) best = part[i] > best ? part[i] : best;
  return best;
}

// e^x to about 1e-7 relative; 0 below -87.3 (no denormals), large and finite above 88. NaN stays.
inline vf exponential(vf x) {
  const vi tiny = x < splat(-87.3f);
  x = tiny ? splat(-87.3f) : x;
  x = x > splat(88.0f) ? splat(88.0f) : x;
  const vf scaled = x * 1.44269504088896341f;
  const vi n = __builtin_convertvector(scaled + (scaled < 0.0f ? splat(-0.5f) : splat(0.5f)), vi);
  const vf whole = __builtin_convertvector(n, vf);
  const vf r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;  // |r| <= ln(2) / 2
  vf y = splat(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  const vf power = (vf)((n + 127) << 23);
  return tiny ? vf{} : y * power;
}

// log(1 + x) for 0 <= x <= 1, relative error about 1e-7: x times a Chebyshev fit of log(1 + x) / x.
inline vf log1p_unit(vf x) {
  vf y = splat(0.0020105489529669285f);
  y = y * x - 0.013266758061945438f;
  y = y * x + 0.04107724875211716f;
  y = y * x - 0.08183111250400543f;
  y = y * x + 0.12363222241401672f;
  y = y * x - 0.16074936091899872f;
  y = y * x + 0.19880232214927673f;
  y = y * x - 0.2498515248298645f;
  y = y * x + 0.33332329988479614f;
  y = y * x - 0.4999997019767761f;
  y = y * x + 1.0f;
  return y * x;
}

inline vf square_root(vf x) {
  vf y;
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_sqrtf(x[i]);
  return y;
}

// 1 / sqrt(x) for x > 0, relative error below 1e-6: the processor's estimate, refined once.
inline vf inverse_root(vf x) {
#if defined(__AVX512F__)
  const vf y = (vf)__builtin_ia32_rsqrt14ps512_mask(x, x, 0xffff);
#elif defined(__AVX2__)
  const vf y = (vf)__builtin_ia32_rsqrtps256(x);
#endif
#if defined(__AVX2__)
  return y * (1.5f - 0.5f * x * y * y);
#else
  return 1.0f / square_root(x);
#endif
}

// Rows lie anywhere in memory: the first kilobyte of one that is needed soon is fetched early.
template <class T> inline void prefetch_row(const T *row, i64 size) {
  const i64 bytes = size * static_cast<i64>(sizeof(T));
  const i64 most = bytes < 1024 ? bytes : 1024;
  for (i64 line = 0; line < most; line += 64)
    __builtin_prefetch(reinterpret_cast<const char *>(row) + line, 1);
}

constexpr i64 kAhead = 3;  // rows
