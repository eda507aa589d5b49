// Products with a packed right operand (product.h): the loops around the tile.
//
// A chunk of rows meets a block of the right operand that stays in the second-level cache. A tile's
// left numbers stay in the first-level cache while the panels of the block pass by. Depth is divided
// too; the sums of a divided depth go on where they stopped, so the division changes no bit.

constexpr i64 kBlockColumns = 512;

// The last rows of a chunk are shared by two tiles alike.
inline i64 rows_of_tile(i64 left) {
  return left >= 2 * kTileRows ? kTileRows : left > kTileRows ? (left + 1) / 2 : left;
}

// A chunk of rows times one block: depths p.k …, columns first … last-1.
template <class Units>
inline void multiply_block(const Panels &b, const LeftChunk &left, LeftPlace p, const uint32_t *tails,
                           const Sums &sums, i64 first, i64 last) {
  typedef typename Units::Number Number;
  const Number *panels = static_cast<const Number *>(b.data.data);
  const i64 first_unit = p.k / kUnit<Number>;
  Tile tile{};
  for (i64 r = 0; r < p.rows; r += tile.rows) {
    tile.rows = rows_of_tile(p.rows - r);
    tile.left = left.data + r * left.row_bytes;
    tile.row_bytes = left.row_bytes;
    tile.unit_bytes = left.unit_bytes;
    tile.tail = tails ? tails + r : nullptr;
    tile.units = tails ? p.depth / kUnit<Number> : units_of<Number>(p.depth);
    for (i64 column = first; column < last; column += kPanelColumns) {
      const i64 width = panel_width(b.columns, column);
      tile.right = panel_at(panels, b.depth, column) + first_unit * width;
      multiply<Units>(tile, sums, r, column - first, smaller(b.columns - column, width), width);
    }
  }
}

// The sums of columns first … over all depths; partial ones in `partial` where C cannot hold them.
template <class Units, class Body>
inline void over_depth(const ProductArgs &a, LeftPlace p, i64 first, Body &&body) {
  constexpr i64 kBlockDepth = kBlockUnits * kUnit<typename Units::Number>;
  const i64 depth = a.right.depth;
  const Numbers none{nullptr, false}, c = moved(a.out, p.row * a.out_step + first);
  if (depth <= kBlockDepth) {
    p.k = 0;
    p.depth = depth;
    return body(p, Sums{a.add ? c : none, a.out_step, c, a.out_step});
  }
  alignas(64) float partial[kChunkRows * kBlockColumns];
  const Numbers kept = a.out.half ? Numbers{partial, false} : c;
  const i64 kept_step = a.out.half ? kBlockColumns : a.out_step;
  for (p.k = 0; p.k < depth; p.k += kBlockDepth) {
    p.depth = smaller(depth - p.k, kBlockDepth);
    const bool begins = p.k == 0, ends = p.k + p.depth == depth;
    body(p, Sums{begins ? (a.add ? c : none) : kept, begins ? a.out_step : kept_step,
                 ends ? c : kept, ends ? a.out_step : kept_step});
  }
}

// body(place of the rows, first column, end of the columns) for chunks of rows and blocks of columns.
template <class Body>
inline void over_blocks(const ProductArgs &a, i64 begin, i64 end, Body &&body) {
  for (i64 row = begin; row < end; row += kChunkRows) {
    const LeftPlace place{row, smaller(end - row, kChunkRows), 0, 0};
    for (i64 first = 0; first < a.right.columns; first += kBlockColumns)
      body(place, first, smaller(a.right.columns, first + kBlockColumns));
  }
}

// The left operand is read where it lies; the last number of an odd depth gets a 0 beside it.
template <class Units>
inline void product_in_place(const ProductArgs &a, i64 begin, i64 end) {
  const i64 size = a.left.half ? 2 : 4;
  over_blocks(a, begin, end, [&](LeftPlace rows, i64 first, i64 last) {
    over_depth<Units>(a, rows, first, [&](LeftPlace p, const Sums &sums) {
      const Numbers left = moved(a.left, p.row * a.row_step + p.k * a.depth_step);
      const LeftChunk chunk{static_cast<const char *>(left.data), a.row_step * size,
                            a.depth_step * size * Units::kLeftNumbers};
      uint32_t tails[kChunkRows];
      const bool half_filled = p.depth % Units::kLeftNumbers != 0;
      if (half_filled)
        for (i64 r = 0; r < p.rows; ++r)
          tails[r] = static_cast<const bf16 *>(left.data)[r * a.row_step + p.depth - 1];
      multiply_block<Units>(a.right, chunk, p, half_filled ? tails : nullptr, sums, first, last);
    });
  });
}

template <class Units>
__attribute__((noinline)) void product_of_copy(const ProductArgs &a, i64 begin, i64 end) {
  alignas(64) char scratch[kChunkRows * kBlockUnits * Units::kLeftNumbers * sizeof(typename Units::Left)];
  over_blocks(a, begin, end, [&](LeftPlace rows, i64 first, i64 last) {
    over_depth<Units>(a, rows, first, [&](LeftPlace p, const Sums &sums) {
      typed(a.left, [&](const auto *left) {
        const LeftChunk chunk = a.depth_step == 1 ? copy_along_depth<Units>(a, left, p, scratch)
                                                  : copy_across_depth<Units>(a, left, p, scratch);
        multiply_block<Units>(a.right, chunk, p, nullptr, sums, first, last);
      });
    });
  });
}

// Whether the tile can read the left operand where it lies. Rows across the depth are far apart: they
// are only worth it for one panel.
inline bool fits_in_place(const ProductArgs &a, FloatUnits) {
  return !a.left.half && (a.depth_step == 1 || a.right.columns <= kPanelColumns);
}
inline bool fits_in_place(const ProductArgs &a, HalfUnits) {
  return sizeof(HalfUnits::Left) == 2 && a.left.half && a.depth_step == 1;
}

template <class Units> inline void product_of(const ProductArgs &a, i64 begin, i64 end) {
  if (fits_in_place(a, Units{}))
    product_in_place<Units>(a, begin, end);
  else
    product_of_copy<Units>(a, begin, end);
}

void product(const ProductArgs &a, i64 begin, i64 end) {
  if (a.right.data.half)
    product_of<HalfUnits>(a, begin, end);
  else
    product_of<FloatUnits>(a, begin, end);
}
