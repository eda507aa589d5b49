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

// Nearest bfloat16, ties to even; a NaN stays one. The processor's own instruction takes numbers
// below the smallest normal one for 0.
#if defined(__AVX512BF16__)
inline vh nearest_half(vf v) { return (vh)_mm512_cvtneps_pbh((__m512)v); }
inline vu nearest_half_bits(vf v) { return __builtin_convertvector(nearest_half(v), vu); }
#else
inline vu nearest_half_bits(vf v) {
  vu bits = (vu)v;
  vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  vu kept_nan = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? kept_nan : rounded;
}
inline vh nearest_half(vf v) { return __builtin_convertvector(nearest_half_bits(v), vh); }
#endif

inline void store(bf16 *p, vf v) {
  const vh half = nearest_half(v);
  __builtin_memcpy(p, &half, sizeof half);
}

inline float as_float(float x) { return x; }
inline float as_float(bf16 x) { return widen(x); }

// The first n < kLanes numbers; the other lanes hold `fill`, and nothing beyond them is touched.
#if BLACKOUT_LANES == 16
inline __mmask16 first_lanes(i64 n) { return static_cast<__mmask16>((1u << n) - 1); }

inline vf load_part(const float *p, i64 n, float fill) {
  return (vf)_mm512_mask_loadu_ps((__m512)splat(fill), first_lanes(n), p);
}
inline vf load_part(const bf16 *p, i64 n, float fill) {
  const vh half = (vh)_mm256_maskz_loadu_epi16(first_lanes(n), p);
  const vf wide = (vf)(__builtin_convertvector(half, vu) << 16);
  return (vf)_mm512_mask_mov_ps((__m512)splat(fill), first_lanes(n), (__m512)wide);
}
inline void store_part(float *p, i64 n, vf v) { _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v); }
inline void store_part(bf16 *p, i64 n, vf v) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), (__m256i)nearest_half(v));
}
#else
template <class T> inline vf load_part(const T *p, i64 n, float fill) {
  float part[kLanes];
  for (int i = 0; i < kLanes; ++i) part[i] = fill;
  for (i64 i = 0; i < n; ++i) part[i] = as_float(p[i]);
  return load(part);
}
template <class T> inline void store_part(T *p, i64 n, vf v) {
  T part[kLanes];
  store(part, v);
  for (i64 i = 0; i < n; ++i) p[i] = part[i];
}
#endif

inline void set(float *p, float x) { *p = x; }
inline void set(bf16 *p, float x) { *p = nearest_half(splat(x))[0]; }

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

// Lanes in a fixed tree, the upper half with the lower one: join(lower, upper).
typedef float quarter_vf __attribute__((vector_size(16)));
template <class F> inline float join_four(quarter_vf v, F &&join) {
  return join(join(v[0], v[2]), join(v[1], v[3]));
}
template <class F> inline float join_lanes(vf v, F &&join) {
#if BLACKOUT_LANES == 16
  const __m256 half = (__m256)join((__v8sf)_mm512_maskz_extractf32x8_ps(0xff, (__m512)v, 0),
                                   (__v8sf)_mm512_maskz_extractf32x8_ps(0xff, (__m512)v, 1));
#elif BLACKOUT_LANES == 8
  const __m256 half = (__m256)v;
#endif
#if BLACKOUT_LANES >= 8
  return join_four(join((quarter_vf)_mm256_castps256_ps128(half),
                        (quarter_vf)_mm256_extractf128_ps(half, 1)),
                   join);
#else
  return join_four(v, join);
#endif
}

inline float sum(vf v) {
  return join_lanes(v, [](auto a, auto b) { return a + b; });
}
inline float maximum(vf v) {
  return join_lanes(v, [](auto a, auto b) { return b > a ? b : a; });
}

// The first lane that holds x, or kLanes.
inline int lane_of(float x, vf v) {
#if BLACKOUT_LANES == 16
  return __builtin_ctz(_mm512_cmp_ps_mask((__m512)v, (__m512)splat(x), _CMP_EQ_OQ) | 1u << kLanes);
#else
  const vi equal = v == x;
  int lane = 0;
  while (lane < kLanes && !equal[lane]) ++lane;
  return lane;
#endif
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
