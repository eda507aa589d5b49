// Initial values of a table.

// 24 bits of a draw as a number between -limit and limit: an odd whole number times limit / 2^24.
inline float uniform(u64 bits, float scale) {
  const int32_t number = static_cast<int32_t>(bits & 0xffffffu);
  return static_cast<float>(2 * number + (1 - (1 << 24))) * scale;
}

// U(-limit, limit) for rows begin … end-1, a pure function of key, row and column; a column
// and the one half a row further share a 64-bit draw. `scratch` holds a row and one number more.
void fill_uniform(const FillArgs &a, i64 begin, i64 end, float *scratch) {
  const i64 draws = (a.size + 1) / 2;
  const float scale = a.limit * 0x1p-24f;
  for (i64 index = begin; index < end; ++index) {
    const u64 row = static_cast<u64>(a.rows ? a.rows[index] : index);
    const u64 first = row * static_cast<u64>(draws) + 1;
    for (i64 draw = 0; draw < draws; ++draw) {
      const u64 bits = mix64(a.key + (first + static_cast<u64>(draw)) * kGolden);
      scratch[draw] = uniform(bits >> 40, scale);
      scratch[draws + draw] = uniform(bits >> 16, scale);
    }
    typed(a.table, [&](auto *table) { copy_row(scratch, table + index * a.size, a.size); });
  }
}
