// The innermost part of a product: a tile of R rows and V vectors of columns, its sums in registers.
//
// The same loop serves every layout of the left operand: row r of unit u lies at
// left + r * row_bytes + u * unit_bytes.

constexpr int kTileRows = 6;
constexpr i64 kAheadUnits = 8;  // of the right operand, fetched early

struct Tile {
  i64 rows;
  const char *left;
  i64 row_bytes, unit_bytes;
  const uint32_t *tail;   // the left numbers of one more unit, one for each row; or null
  const uint32_t *right;  // units of V vectors
  i64 units;
  const float *start;  // where the sums begin; null: at 0
  i64 start_step;
  float *out;
  i64 out_step;
};

template <class T> inline T read_as(const char *p) {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

inline vu splat_bits(uint32_t x) { return x - vu{}; }

inline vu load_bits(const uint32_t *p) {
  vu v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

#define BLACKOUT_INLINE inline __attribute__((always_inline))

// How one unit is multiplied. `Left` is the format that the tile needs the left operand in.
struct FloatUnits {
  typedef float Number;
  typedef float Left;
  static constexpr i64 kLeftNumbers = 1;  // of a unit

  template <int R, int V>
  static BLACKOUT_INLINE void add(vf (&sum)[R][V], const char *const (&left)[R], i64 offset,
                                  const uint32_t *right) {
    vf b[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) b[v] = (vf)load_bits(right + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const vf a = splat(read_as<float>(left[r] + offset));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] += a * b[v];
    }
  }
};

#if defined(__AVX512BF16__)
BLACKOUT_INLINE vf multiply_pairs(vf sum, vu a, vu b) {
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

struct HalfUnits {
  typedef bf16 Number;
  typedef bf16 Left;
  static constexpr i64 kLeftNumbers = 2;

  template <int R, int V>
  static BLACKOUT_INLINE void add(vf (&sum)[R][V], const char *const (&left)[R], i64 offset,
                                  const uint32_t *right) {
    vu b[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) b[v] = load_bits(right + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const vu a = splat_bits(read_as<uint32_t>(left[r] + offset));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = multiply_pairs(sum[r][v], a, b[v]);
    }
  }
};
#else
// Without such an instruction both numbers of a pair are widened: the left ones beforehand.
struct HalfUnits {
  typedef bf16 Number;
  typedef float Left;
  static constexpr i64 kLeftNumbers = 2;

  template <int R, int V>
  static BLACKOUT_INLINE void add(vf (&sum)[R][V], const char *const (&left)[R], i64 offset,
                                  const uint32_t *right) {
    vf even[V], odd[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const vu pair = load_bits(right + v * kLanes);
      even[v] = (vf)(pair << 16);
      odd[v] = (vf)(pair & 0xffff0000u);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const vf a = splat(read_as<float>(left[r] + offset));
      const vf b = splat(read_as<float>(left[r] + offset + 4));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = sum[r][v] + a * even[v] + b * odd[v];
    }
  }
};
#endif

template <class Units, int R, int V> void multiply_tile(const Tile &t) {
  vf sum[R][V] = {};
  if (t.start)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = load(t.start + r * t.start_step + v * kLanes);
  const char *left[R];
  for (int r = 0; r < R; ++r) left[r] = t.left + r * t.row_bytes;
  const uint32_t *right = t.right;
  i64 offset = 0;
  for (i64 unit = 0; unit < t.units; ++unit, offset += t.unit_bytes, right += V * kLanes) {
    const uint32_t *ahead = right + kAheadUnits * V * kLanes;
#pragma GCC unroll 8
    for (int line = 0; line < V * kLanes / 16; ++line) __builtin_prefetch(ahead + 16 * line);
    Units::template add<R, V>(sum, left, offset, right);
  }
  if (t.tail) {
    for (int r = 0; r < R; ++r) left[r] = reinterpret_cast<const char *>(t.tail + r);
    Units::template add<R, V>(sum, left, 0, right);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(t.out + r * t.out_step + v * kLanes, sum[r][v]);
}

template <class Units, int V> inline void multiply_rows(const Tile &t) {
  static_assert(kTileRows == 6, "one case for each number of rows");
  switch (t.rows) {
    case 1: return multiply_tile<Units, 1, V>(t);
    case 2: return multiply_tile<Units, 2, V>(t);
    case 3: return multiply_tile<Units, 3, V>(t);
    case 4: return multiply_tile<Units, 4, V>(t);
    case 5: return multiply_tile<Units, 5, V>(t);
    default: return multiply_tile<Units, 6, V>(t);
  }
}

template <class Units> inline void multiply_whole(const Tile &t, i64 width) {
  switch (width / kLanes) {
    case 1: return multiply_rows<Units, 1>(t);
    case 2: return multiply_rows<Units, 2>(t);
#if BLACKOUT_LANES == 16
    case 3: return multiply_rows<Units, 3>(t);
    default: return multiply_rows<Units, 4>(t);
#endif
  }
}

// Where the sums of a chunk begin and where they go.
struct Sums {
  Numbers start;  // null: at 0
  i64 start_step;
  Numbers out;
  i64 out_step;
};

inline Numbers moved(Numbers numbers, i64 n) {
  return {static_cast<char *>(numbers.data) + n * (numbers.half ? 2 : 4), numbers.half};
}

// A tile whose result is no array of whole float32 vectors: the sums take a detour.
template <class Units>
__attribute__((noinline)) void multiply_by_detour(Tile &t, Numbers start, i64 start_step, Numbers out,
                                                  i64 out_step, i64 columns, i64 width) {
  alignas(64) float detour[kTileRows * kPanelColumns];
  t.start = start.data ? detour : nullptr;
  t.out = detour;
  t.start_step = t.out_step = width;
  if (start.data)
    typed(start, [&](const auto *from) {
      for (i64 r = 0; r < t.rows; ++r)
        sweep(columns, [&](i64 i, auto part) {
          store(detour + r * width + i, part.at(from + r * start_step + i));
        });
    });
  multiply_whole<Units>(t, width);
  typed(out, [&](auto *to) {
    for (i64 r = 0; r < t.rows; ++r)
      copy_row(static_cast<const float *>(detour) + r * width, to + r * out_step, columns);
  });
}

// The tile at a row and column of the chunk: `columns` of a panel that is `width` wide.
template <class Units>
inline void multiply(Tile &t, const Sums &sums, i64 row, i64 column, i64 columns, i64 width) {
  Numbers start = sums.start;
  if (start.data) start = moved(start, row * sums.start_step + column);
  const Numbers out = moved(sums.out, row * sums.out_step + column);
  if (columns != width || out.half || start.half)
    return multiply_by_detour<Units>(t, start, sums.start_step, out, sums.out_step, columns, width);
  t.start = static_cast<const float *>(start.data);
  t.out = static_cast<float *>(out.data);
  t.start_step = sums.start_step;
  t.out_step = sums.out_step;
  multiply_whole<Units>(t, width);
}
