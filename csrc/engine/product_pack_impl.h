// Packing of the right operand of a product (product.h).
//
// Panels of kPanelColumns columns lie one behind the other, the last one as narrow as whole vectors
// allow. A panel is a sequence of units: in float32 the columns of one depth, in bfloat16 those of
// two depths, in pairs, as the instruction for bfloat16 products reads them. So both formats are
// arrays of 32-bit lanes. What is beyond the last depth or column is 0.

constexpr int kTileVectors = BLACKOUT_LANES == 16 ? 4 : 2;
constexpr i64 kPanelColumns = kTileVectors * kLanes;

inline i64 round_up(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }
inline i64 smaller(i64 a, i64 b) { return a < b ? a : b; }

// Numbers of one column in a unit.
template <class T> constexpr i64 kUnit = 4 / sizeof(T);
template <class T> inline i64 units_of(i64 depth) { return (depth + kUnit<T> - 1) / kUnit<T>; }

inline i64 panel_width(i64 columns, i64 first_column) {
  return smaller(round_up(columns - first_column, kLanes), kPanelColumns);
}

// The panel that begins at `first_column`, a multiple of kPanelColumns, as lanes.
template <class T> inline uint32_t *panel_at(T *panels, i64 depth, i64 first_column) {
  return reinterpret_cast<uint32_t *>(panels) + first_column * units_of<T>(depth);
}
template <class T> inline const uint32_t *panel_at(const T *panels, i64 depth, i64 first_column) {
  return panel_at(const_cast<T *>(panels), depth, first_column);
}

inline void store(uint32_t *p, vu v) { __builtin_memcpy(p, &v, sizeof v); }

// The numbers of one vector as bfloat16, in the lower halves of its lanes.
template <class Part> inline vu half_bits(Part part, const float *p) {
  return nearest_half_bits(part.at(p));
}
template <class Part> inline vu half_bits(Part part, const bf16 *p) { return (vu)part.at(p) >> 16; }

// One vector of a unit from the rows that are its depths; `odd` is null after the last one.
template <class Part, class From>
inline vu unit_of_rows(Part part, const From *even, const From *, const float *) {
  return (vu)part.at(even);
}
template <class Part, class From>
inline vu unit_of_rows(Part part, const From *even, const From *odd, const bf16 *) {
  const vu low = half_bits(part, even);
  return odd ? low | half_bits(part, odd) << 16 : low;
}

template <class From> inline const From *packed_row(const PackArgs &a, const From *from, i64 i) {
  return from + (a.rows ? a.rows[i] : i) * a.stride;
}

template <class From, class To>
inline void pack_rows_typed(const PackArgs &a, const From *from, To *to, i64 begin, i64 end) {
  const i64 columns = a.to.columns;
  for (i64 k = begin; k < end; k += kUnit<To>) {
    const From *even = packed_row(a, from, k);
    const From *odd = k + 1 < end ? packed_row(a, from, k + 1) : nullptr;
    if (a.rows && k + kAhead < end) prefetch_row(packed_row(a, from, k + kAhead), columns);
    for (i64 first = 0; first < columns; first += kPanelColumns) {
      const i64 width = panel_width(columns, first);
      uint32_t *unit = panel_at(to, a.to.depth, first) + k / kUnit<To> * width;
      sweep(smaller(columns - first, width), [&](i64 j, auto part) {
        const From *second = odd ? odd + first + j : nullptr;
        store(unit + j, unit_of_rows(part, even + first + j, second, to));
      });
    }
  }
}

void pack_rows(const PackArgs &a, i64 begin, i64 end) {
  typed(a.from, [&](const auto *from) {
    typed(a.to.data, [&](auto *to) { pack_rows_typed(a, from, to, begin, end); });
  });
}

// a0 b0 a1 b1 … of the lower or upper halves.
inline void interleave(vu a, vu b, vu &low, vu &high) {
#if defined(__clang__)
#if BLACKOUT_LANES == 16
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif BLACKOUT_LANES == 8
  low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
#else
  vu from_low, from_high;
  for (int i = 0; i < kLanes; ++i) {
    from_low[i] = static_cast<uint32_t>(i / 2 + i % 2 * kLanes);
    from_high[i] = from_low[i] + kLanes / 2;
  }
  low = __builtin_shuffle(a, b, from_low);
  high = __builtin_shuffle(a, b, from_high);
#endif
}

// Rows i and i + kLanes/2 interleaved, log2(kLanes) times over.
inline void transpose(vu (&rows)[kLanes]) {
  vu other[kLanes];
  for (int width = 1; width < kLanes; width *= 2) {
    for (int i = 0; i < kLanes / 2; ++i)
      interleave(rows[i], rows[i + kLanes / 2], other[2 * i], other[2 * i + 1]);
    for (int i = 0; i < kLanes; ++i) rows[i] = other[i];
  }
}

// The first `n` <= kLanes units of a row that is a column of the operand; `left` numbers remain.
inline vu units_of_row(const float *row, i64 left, const float *) {
  return (vu)(left >= kLanes ? load(row) : load_part(row, left, 0));
}
inline vu units_of_row(const bf16 *row, i64 left, const float *) {
  return (vu)(left >= kLanes ? load(row) : load_part(row, left, 0));
}
inline vu units_of_row(const bf16 *row, i64 left, const bf16 *) {
  vu units{};
  if (left >= 2 * kLanes) {
    __builtin_memcpy(&units, row, sizeof units);
  } else {
    bf16 part[2 * kLanes] = {};
    for (i64 i = 0; i < left; ++i) part[i] = row[i];
    __builtin_memcpy(&units, part, sizeof units);
  }
  return units;
}
inline vu units_of_row(const float *row, i64 left, const bf16 *to) {
#if defined(__AVX512BF16__)
  if (left >= 2 * kLanes)
    return (vu)_mm512_cvtne2ps_pbh((__m512)load(row + kLanes), (__m512)load(row));
#endif
  bf16 part[2 * kLanes] = {};
  sweep(smaller(left, 2 * kLanes), [&](i64 i, auto lanes) { lanes.put(part + i, lanes.at(row + i)); });
  return units_of_row(part, 2 * kLanes, to);
}

// kLanes columns, or as many as there are before `end`, all depths. The block is turned in registers.
template <class From, class To>
inline void pack_column_vector(const PackArgs &a, const From *from, To *to, i64 column, i64 end) {
  const i64 count = smaller(end - column, kLanes);
  const i64 first = column / kPanelColumns * kPanelColumns, units = units_of<To>(a.to.depth);
  const i64 width = panel_width(a.to.columns, first);
  uint32_t *panel = panel_at(to, a.to.depth, first) + (column - first);
  const From *row[kLanes];
  for (i64 i = 0; i < count; ++i) row[i] = packed_row(a, from, column + i);
  if (a.rows)  // the rows after these
    for (i64 i = column + kLanes; i < smaller(column + 2 * kLanes, end); ++i)
      prefetch_row(packed_row(a, from, i), a.to.depth);
  for (i64 unit = 0; unit < units; unit += kLanes) {
    vu lanes[kLanes] = {};
    const i64 k = unit * kUnit<To>;
    for (i64 i = 0; i < count; ++i) lanes[i] = units_of_row(row[i] + k, a.to.depth - k, to);
    transpose(lanes);
    const i64 last = smaller(units - unit, kLanes);
    for (i64 i = 0; i < last; ++i) store(panel + (unit + i) * width, lanes[i]);
  }
}

void pack_columns(const PackArgs &a, i64 begin, i64 end) {
  typed(a.from, [&](const auto *from) {
    typed(a.to.data, [&](auto *to) {
      for (i64 column = begin; column < end; column += kLanes)
        pack_column_vector(a, from, to, column, end);
    });
  });
}
