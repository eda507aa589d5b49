#include "step/update.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "engine/parallel.h"
#include "engine/rows.h"

namespace blackout {
namespace {

constexpr i64 kPowers = 4096;  // of beta, kept; rows that waited longer are rare
constexpr i64 kPiece = 4096;   // numbers whose squares are added in float32

// The key of the random bits with which one step rounds one table (ops/reference/rmsprop.py).
u64 rounding_key(const Parameter &p) {
  u64 key = 0;
  for (u64 number : {p.seed, p.number, static_cast<u64>(*p.step)})
    key = mix64(key + number + kGolden);
  return key;
}

RmsPropArgs settings(const Parameter &p, double factor, double lr, const float *agings) {
  const Rate rate = corrected(p, lr);
  return {static_cast<float>(factor),
          static_cast<float>(rate.lr),
          static_cast<float>(p.beta),
          static_cast<float>(rate.damping),
          static_cast<float>(lr * p.weight_decay),
          static_cast<float>(p.beta),
          agings,
          p.row_moment,
          p.weight.half ? rounding_key(p) : 0,
          nullptr};
}

}  // namespace

Rate corrected(const Parameter &p, double lr) {
  if (!p.correct_bias) return {lr, p.damping};
  const double seen = 1 - std::pow(p.beta, static_cast<double>(*p.step));
  return {lr * std::sqrt(seen), p.damping * seen};
}

RowUpdate::RowUpdate(i64 most_rows)
    : rows_(most_rows),
      start_(most_rows + 1),
      order_(most_rows),
      norms_(most_rows),
      agings_(most_rows) {}

void RowUpdate::collect(const i64 *rows, i64 n) {
  distinct_ = collect_rows(rows, n, rows_, start_, order_);
}

RowGradient RowUpdate::gradient(Numbers values, i64 size) const {
  return {size, rows_, start_, order_, values};
}

// One part of the distinct rows for each thread, balanced by occurrences.
template <class F> void RowUpdate::over_rows(i64 size, int threads, F &&body) {
  const int parts = start_[distinct_] * size < 32768 ? 1 : threads;
  if (2 * size > scratch_size_ || static_cast<int>(scratch_.size()) < parts) {
    scratch_.clear();
    for (int i = 0; i < threads; ++i) scratch_.emplace_back(2 * size);
    scratch_size_ = 2 * size;
  }
  auto part = [&](int number) {
    body(first_row(start_, distinct_, number, parts), first_row(start_, distinct_, number + 1, parts),
         scratch_[static_cast<size_t>(number)].data());
  };
  parallel(parts, threads, part);
}

double RowUpdate::squared_norm(Numbers values, i64 size, int threads) {
  const RowGradient g = gradient(values, size);
  over_rows(size, threads, [&](i64 begin, i64 end, float *scratch) {
    kernels().squared_norms(g, norms_, begin, end, scratch);
  });
  double total = 0;  // in one order whatever the threads
  for (i64 i = 0; i < distinct_; ++i) total += norms_[i];
  return total;
}

void RowUpdate::keep_powers(double beta) {
  if (beta == powers_of_) return;
  powers_.clear();
  for (i64 i = 0; i < kPowers; ++i)
    powers_.push_back(static_cast<float>(std::pow(beta, static_cast<double>(i))));
  powers_of_ = beta;
}

float RowUpdate::power(double beta, i64 waited) const {
  if (waited < kPowers) return powers_[static_cast<size_t>(std::max<i64>(waited, 0))];
  return static_cast<float>(std::pow(beta, static_cast<double>(waited)));
}

// How much of the second moment of rows begin … end-1 is left; marks them as updated.
void RowUpdate::age(const Parameter &p, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i) {
    const i64 row = rows_[i];
    if (p.decay == kExact)
      agings_[i] = power(p.beta, *p.step - p.touched[row]);
    else if (p.decay == kPaper)
      agings_[i] = static_cast<float>(std::pow(p.beta, 1 / p.update_rate[row]));
    else
      agings_[i] = static_cast<float>(p.beta);
    p.touched[row] = static_cast<int32_t>(*p.step);
  }
}

void RowUpdate::apply(const Parameter &p, Numbers values, double factor, double lr, int threads) {
  if (p.decay == kExact) keep_powers(p.beta);
  ++*p.step;
  const UpdateArgs args{gradient(values, p.size), settings(p, factor, lr, agings_), p.weight,
                        p.moment};
  over_rows(p.size, threads, [&](i64 begin, i64 end, float *scratch) {
    age(p, begin, end);
    kernels().update_rows(args, begin, end, scratch);
  });
}

double dense_squared_norm(const float *values, i64 n, int threads) {
  const i64 pieces = (n + kPiece - 1) / kPiece;
  std::vector<double> norms(static_cast<size_t>(pieces));
  const Numbers numbers{const_cast<float *>(values), false};
  parallel_ranges(pieces, 8, threads, [&](i64 begin, i64 end) {
    for (i64 piece = begin; piece < end; ++piece)
      norms[static_cast<size_t>(piece)] =
          kernels().sum_of_squares(numbers, piece * kPiece, std::min((piece + 1) * kPiece, n));
  });
  double total = 0;
  for (double norm : norms) total += norm;
  return total;
}

void apply_dense(const Parameter &p, const float *gradient, double factor, double lr, int threads) {
  ++*p.step;
  const i64 n = p.rows * p.size;
  const UpdateArgs args{{n, nullptr, nullptr, nullptr, {const_cast<float *>(gradient), false}},
                        settings(p, factor, lr, nullptr), p.weight, p.moment};
  parallel_ranges(n, 8192, threads,
                  [&](i64 begin, i64 end) { kernels().update_dense(args, begin, end); });
}

}  // namespace blackout
