// The left operand of a product (product.h) as the tile reads it: where it lies, or a copy.

constexpr i64 kChunkRows = 8 * kTileRows;  // rows of a copy
constexpr i64 kBlockUnits = 256;           // and its units

constexpr i64 kAheadAcross = 8;            // depths that are fetched early

// Row r, unit u lies at data + r * row_bytes + u * unit_bytes; the units but a half filled last one.
struct LeftChunk {
  const char *data;
  i64 row_bytes, unit_bytes;
};

// Rows `row` … `row + rows - 1`, depths `k` … `k + depth - 1` of the left operand.
struct LeftPlace {
  i64 row, rows, k, depth;
};

inline vf rounded_to(vf x, const float *) { return x; }
inline vf rounded_to(vf x, const bf16 *) { return (vf)(nearest_half_bits(x) << 16); }

// A copy with the numbers of a row together.
template <class Units, class From>
inline LeftChunk copy_along_depth(const ProductArgs &a, const From *left, LeftPlace p, char *scratch) {
  typedef typename Units::Left To;
  [[maybe_unused]] const typename Units::Number *format = nullptr;
  const i64 padded = round_up(p.depth, Units::kLeftNumbers);
  To *to = reinterpret_cast<To *>(scratch);
  for (i64 r = 0; r < p.rows; ++r, to += padded) {
    const From *from = left + (p.row + r) * a.row_step + p.k;
    sweep(p.depth, [&](i64 i, auto part) {
      if constexpr (sizeof(To) == 2)
        part.put(to + i, part.at(from + i));  // rounds
      else
        part.put(to + i, rounded_to(part.at(from + i), format));
    });
    for (i64 i = p.depth; i < padded; ++i) to[i] = 0;
  }
  const i64 size = sizeof(To);
  return {scratch, padded * size, Units::kLeftNumbers * size};
}

// One unit of the rows' numbers side by side: 32-bit lanes, or two floats where pairs are widened.
template <class Part, class From>
inline void put_across(uint32_t *to, Part part, const From *even, const From *odd, FloatUnits) {
  store(to, unit_of_rows(part, even, odd, static_cast<const float *>(nullptr)));
}
template <class Part, class From>
inline void put_across(uint32_t *to, Part part, const From *even, const From *odd, HalfUnits) {
  const bf16 *format = nullptr;
#if defined(__AVX512BF16__)
  store(to, unit_of_rows(part, even, odd, format));
#else
  vu low, high;
  interleave((vu)rounded_to(part.at(even), format),
             odd ? (vu)rounded_to(part.at(odd), format) : vu{}, low, high);
  store(to, low);
  store(to + kLanes, high);
#endif
}

// A copy with the numbers of a depth, or of a pair of depths, together.
template <class Units, class From>
inline LeftChunk copy_across_depth(const ProductArgs &a, const From *left, LeftPlace p, char *scratch) {
  constexpr i64 kLanesOfUnit = Units::kLeftNumbers * sizeof(typename Units::Left) / 4;
  constexpr i64 kStep = kUnit<typename Units::Number>;
  uint32_t *to = reinterpret_cast<uint32_t *>(scratch);
  const i64 last = p.k + p.depth;
  for (i64 k = p.k; k < last; k += kStep, to += kChunkRows * kLanesOfUnit) {
    const From *even = left + k * a.depth_step + p.row;
    const From *odd = k + 1 < last ? even + a.depth_step : nullptr;
    for (i64 ahead = k + kAheadAcross; ahead < smaller(k + kAheadAcross + kStep, last); ++ahead)
      prefetch_row(left + ahead * a.depth_step + p.row, p.rows);
    sweep(p.rows, [&](i64 i, auto part) {
      put_across(to + i * kLanesOfUnit, part, even + i, odd ? odd + i : odd, Units{});
    });
  }
  return {scratch, kLanesOfUnit * 4, kChunkRows * kLanesOfUnit * 4};
}
