// Python names of the engine, for ops/cpu alone.
//
// Arrays come as addresses: ops/cpu has checked type, layout and size, and a block makes some
// hundred of these calls, each of which would cost more to import by DLPack than to compute.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <vector>

#include "engine/buffers.h"
#include "engine/kernels.h"
#include "engine/parallel.h"
#include "engine/rows.h"
#include "engine/sampling.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace blackout {
namespace {

using Address = uintptr_t;
using Release = nb::call_guard<nb::gil_scoped_release>;

template <class T> T *at(Address address) { return reinterpret_cast<T *>(address); }
Numbers numbers(Address address, bool half) { return {at<void>(address), half}; }

i64 grain(i64 size, i64 numbers_at_least) { return numbers_at_least / (size > 0 ? size : 1) + 1; }

void fill_uniform(Address table, bool half, i64 n, i64 size, Address rows, u64 key, float limit,
                  int threads) {
  const FillArgs args{numbers(table, half), size, at<i64>(rows), key, limit};
  parallel_ranges(n, grain(size, 16384), threads, [&](i64 begin, i64 end) {
    std::vector<float> scratch(static_cast<size_t>(size) + 1);
    kernels().fill_uniform(args, begin, end, scratch.data());
  });
}

void gather(Address table, bool table_half, Address rows, i64 n, i64 size, Address out,
            bool out_half, int threads) {
  const GatherArgs args{numbers(table, table_half), at<i64>(rows), size, numbers(out, out_half)};
  parallel_ranges(n, grain(size, 16384), threads,
                  [&](i64 begin, i64 end) { kernels().gather(args, begin, end); });
}

void words(int objective, bool keep_copies, i64 group_words, i64 n, i64 samples, i64 size, Address hidden,
           Address table, bool table_half, Address target, Address target_offset, Address sample,
           Address sample_offset, Address multiplicity, Address logits, bool logits_half,
           Address value, Address d_target, int threads) {
  const WordArgs args{objective,
                      keep_copies,
                      group_words,
                      samples,
                      size,
                      at<float>(hidden),
                      numbers(table, table_half),
                      at<i64>(target),
                      at<float>(target_offset),
                      at<i64>(sample),
                      at<float>(sample_offset),
                      at<float>(multiplicity),
                      numbers(logits, logits_half),
                      numbers(logits, logits_half),
                      at<float>(value),
                      at<float>(d_target)};
  parallel_ranges(n, grain(samples + size, 4096), threads, [&](i64 begin, i64 end) {
    std::vector<float> scratch(static_cast<size_t>(word_scratch(samples)));
    kernels().words(args, begin, end, scratch.data());
  });
}

// Round `number` of three; arrays that it does not look at may be null.
void rounds(int number, i64 group_words, i64 n, i64 columns, Address logits, bool half,
            Address offset, Address copies, Address replaced, Address e, Address peak, Address rest,
            Address top_z, Address left, Address top, Address to_p, Address odds, Address miss,
            Address odds_sum, Address to_share, Address d_top, Address derivatives, int threads) {
  const RoundArgs args{group_words,
                       columns,
                       numbers(logits, half),
                       at<float>(offset),
                       at<float>(copies),
                       at<i64>(replaced),
                       at<float>(e),
                       at<float>(peak),
                       at<float>(rest),
                       at<float>(top_z),
                       at<float>(left),
                       at<i64>(top),
                       at<float>(to_p),
                       at<float>(odds),
                       at<float>(miss),
                       at<float>(odds_sum),
                       at<float>(to_share),
                       at<float>(d_top),
                       numbers(derivatives, half)};
  parallel_ranges(n, grain(columns, 4096), threads, [&](i64 begin, i64 end) {
    std::vector<float> scratch(number == 1 ? static_cast<size_t>(word_scratch(columns)) : 0);
    if (number == 1) kernels().round_one(args, begin, end, scratch.data());
    if (number == 2) kernels().round_two(args, begin, end);
    if (number == 3) kernels().round_three(args, begin, end);
  });
}

void scale_hidden(i64 n, i64 size, Address hidden, Address factor, Address d_target, Address scaled,
                  bool scaled_half, Address target_rows, bool rows_half, int threads) {
  const ScaleArgs args{size,
                       at<float>(hidden),
                       at<float>(factor),
                       at<float>(d_target),
                       numbers(scaled, scaled_half),
                       numbers(target_rows, rows_half)};
  parallel_ranges(n, grain(size, 16384), threads,
                  [&](i64 begin, i64 end) { kernels().scale_hidden(args, begin, end); });
}

void hidden_gradient(i64 n, i64 size, Address product, bool product_half, Address table,
                     bool table_half, Address target, Address d_target, Address factor, Address out,
                     int threads) {
  const HiddenGradientArgs args{size,
                                numbers(product, product_half),
                                numbers(table, table_half),
                                at<i64>(target),
                                at<float>(d_target),
                                at<float>(factor),
                                at<float>(out)};
  parallel_ranges(n, grain(size, 16384), threads,
                  [&](i64 begin, i64 end) { kernels().hidden_gradient(args, begin, end); });
}

void convert(Address from, bool from_half, Address to, bool to_half, i64 n, int threads) {
  const ConvertArgs args{numbers(from, from_half), numbers(to, to_half)};
  parallel_ranges(n, 16384, threads,
                  [&](i64 begin, i64 end) { kernels().convert(args, begin, end); });
}

void log_sum(Address logits, bool half, i64 n, i64 size, Address bias, Address maximum,
             Address total, int threads) {
  const LogSumArgs args{size, numbers(logits, half), at<float>(bias), at<float>(maximum),
                        at<float>(total)};
  parallel_ranges(n, grain(size, 8192), threads,
                  [&](i64 begin, i64 end) { kernels().log_sum(args, begin, end); });
}

RowGradient row_gradient(i64 size, Address rows, Address start, Address order, Address values,
                         bool half) {
  return {size, at<i64>(rows), at<i64>(start), at<int32_t>(order), numbers(values, half)};
}

// One part of the distinct rows for each thread, balanced by occurrences.
template <class F> void over_rows(const RowGradient &g, i64 distinct, int threads, F &&body) {
  const i64 work = g.start[distinct] * g.size;
  const int parts = work < 32768 ? 1 : threads;
  auto part = [&](int number) {
    std::vector<float> scratch(static_cast<size_t>(2 * g.size));
    body(first_row(g.start, distinct, number, parts), first_row(g.start, distinct, number + 1, parts),
         scratch.data());
  };
  parallel(parts, threads, part);
}

void sum_rows(i64 size, Address rows, Address start, Address order, Address values, bool half,
              i64 distinct, Address out, int threads) {
  const RowGradient g = row_gradient(size, rows, start, order, values, half);
  over_rows(g, distinct, threads,
            [&](i64 begin, i64 end, float *) { kernels().sum_rows(g, at<float>(out), begin, end); });
}

// The squared norm of the summed gradient; rows are added up in one order whatever the threads.
double squared_norm(i64 size, Address rows, Address start, Address order, Address values, bool half,
                    i64 distinct, int threads) {
  const RowGradient g = row_gradient(size, rows, start, order, values, half);
  std::vector<double> norms(static_cast<size_t>(distinct));
  over_rows(g, distinct, threads, [&](i64 begin, i64 end, float *scratch) {
    kernels().squared_norms(g, norms.data(), begin, end, scratch);
  });
  double total = 0;
  for (double norm : norms) total += norm;
  return total;
}

// The squared norm of a dense gradient, in pieces of one size whatever the threads.
double dense_squared_norm(Address values, bool half, i64 n, int threads) {
  constexpr i64 kPiece = 4096;
  const i64 pieces = (n + kPiece - 1) / kPiece;
  std::vector<double> norms(static_cast<size_t>(pieces));
  parallel_ranges(pieces, 8, threads, [&](i64 begin, i64 end) {
    for (i64 piece = begin; piece < end; ++piece) {
      const i64 first = piece * kPiece, count = n - first < kPiece ? n - first : kPiece;
      norms[static_cast<size_t>(piece)] =
          kernels().sum_of_squares(numbers(values, half), first, first + count);
    }
  });
  double total = 0;
  for (double norm : norms) total += norm;
  return total;
}

// beta^(steps since the last update) of each row; marks the rows as updated.
void exact_aging(Address touched, Address rows, i64 n, i64 step, double beta, Address agings,
                 int threads) {
  constexpr i64 kKnown = 1024;  // short waits, which most rows of a much touched table have
  const double log_beta = std::log(beta);
  const auto aging = [&](i64 waited) {
    return waited > 0 ? static_cast<float>(std::exp(static_cast<double>(waited) * log_beta)) : 1.0f;
  };
  std::vector<float> known(static_cast<size_t>(n > 4 * kKnown ? kKnown : 0));
  for (size_t waited = 0; waited < known.size(); ++waited)
    known[waited] = aging(static_cast<i64>(waited));
  parallel_ranges(n, 1024, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      int32_t &last = at<int32_t>(touched)[at<i64>(rows)[i]];
      const i64 waited = step - last;
      const bool is_known = static_cast<u64>(waited) < known.size();
      at<float>(agings)[i] = is_known ? known[static_cast<size_t>(waited)] : aging(waited);
      last = static_cast<int32_t>(step);
    }
  });
}

RmsPropArgs settings(float factor, float lr, float beta, float damping, float shrink, float aging,
                     Address agings, bool row_moment, u64 rounding, Address numbers) {
  return {factor, lr,           beta,       damping,  shrink,
          aging,  at<float>(agings), row_moment, rounding, at<i64>(numbers)};
}

void update_rows(i64 size, Address rows, Address start, Address order, Address values, bool half,
                 i64 distinct, Address table, bool table_half, Address moment, float factor,
                 float lr, float beta, float damping, float shrink, float aging, Address agings,
                 bool row_moment, u64 rounding, Address whole, int threads) {
  const UpdateArgs args{row_gradient(size, rows, start, order, values, half),
                        settings(factor, lr, beta, damping, shrink, aging, agings, row_moment,
                                 rounding, whole),
                        numbers(table, table_half), at<float>(moment)};
  over_rows(args.gradient, distinct, threads, [&](i64 begin, i64 end, float *scratch) {
    kernels().update_rows(args, begin, end, scratch);
  });
}

void update_dense(i64 n, Address gradient, bool half, Address weight, Address moment, float factor,
                  float lr, float beta, float damping, float shrink, float aging, int threads) {
  const UpdateArgs args{{n, nullptr, nullptr, nullptr, numbers(gradient, half)},
                        settings(factor, lr, beta, damping, shrink, aging, 0, false, 0, 0),
                        numbers(weight, false), at<float>(moment)};
  parallel_ranges(n, 8192, threads,
                  [&](i64 begin, i64 end) { kernels().update_dense(args, begin, end); });
}

// As update_rows, with the first moments and their memory, for all or for each row.
void adam_rows(i64 size, Address rows, Address start, Address order, Address values, bool half,
               i64 distinct, Address table, bool table_half, Address moment, float factor, float lr,
               float beta, float damping, float shrink, float aging, Address agings,
               bool row_moment, u64 rounding, Address whole, Address mean, float momentum,
               Address momenta, int threads) {
  const UpdateArgs update{
      row_gradient(size, rows, start, order, values, half),
      settings(factor, lr, beta, damping, shrink, aging, agings, row_moment, rounding, whole),
      numbers(table, table_half), at<float>(moment)};
  const AdamArgs args{update, at<float>(mean), momentum, at<float>(momenta)};
  over_rows(update.gradient, distinct, threads, [&](i64 begin, i64 end, float *scratch) {
    kernels().adam_rows(args, begin, end, scratch);
  });
}

void adam_dense(i64 n, Address gradient, bool half, Address weight, Address moment, float factor,
                float lr, float beta, float damping, float shrink, float aging, Address mean,
                float momentum, int threads) {
  const UpdateArgs update{{n, nullptr, nullptr, nullptr, numbers(gradient, half)},
                          settings(factor, lr, beta, damping, shrink, aging, 0, false, 0, 0),
                          numbers(weight, false), at<float>(moment)};
  const AdamArgs args{update, at<float>(mean), momentum, nullptr};
  parallel_ranges(n, 8192, threads,
                  [&](i64 begin, i64 end) { kernels().adam_dense(args, begin, end); });
}

void step_forward(int activation, i64 streams, i64 size, Address product, bool half, Address input,
                  Address keep, Address result, Address operand, int threads) {
  const StepArgs args{activation,        size,      numbers(product, half),
                      at<float>(input),  nullptr,   at<float>(keep),
                      at<float>(result), numbers(operand, half)};
  parallel_ranges(streams, grain(size, 4096), threads,
                  [&](i64 begin, i64 end) { kernels().step_forward(args, begin, end); });
}

void step_backward(int activation, i64 streams, i64 size, Address product, bool half,
                   Address gradient, Address output, Address keep, Address result, Address operand,
                   int threads) {
  const StepArgs args{activation,          size,              numbers(product, half),
                      at<float>(gradient), at<float>(output), at<float>(keep),
                      at<float>(result),   numbers(operand, half)};
  parallel_ranges(streams, grain(size, 8192), threads,
                  [&](i64 begin, i64 end) { kernels().step_backward(args, begin, end); });
}

// A block of `bytes` bytes as an array; the memory returns to the idle buffers with its last user.
nb::ndarray<nb::numpy, uint8_t> buffer(size_t bytes) {
  Buffer *taken = take_buffer(bytes);
  nb::capsule owner(taken, [](void *p) noexcept { give_back_buffer(static_cast<Buffer *>(p)); });
  return nb::ndarray<nb::numpy, uint8_t>(taken->data, {bytes}, owner);
}

}  // namespace
}  // namespace blackout

void bind_engine(nb::module_ &m) {
  using namespace blackout;
  m.def("isa", [] { return kernels().name; });
  m.def("pool", &pool_name);
  m.def("buffer", &buffer);
  m.def("drop_idle_buffers", &drop_idle_buffers);
  m.def("advise_huge_pages",
        [](Address address, size_t bytes) { advise_huge_pages(at<void>(address), bytes); });
  m.def(
      "draw_samples",
      [](Address threshold, Address alias, i64 vocab, u64 seed, u64 step, i64 groups, i64 count,
         Address out, int threads) {
        draw_samples(at<double>(threshold), at<i64>(alias), vocab, seed, step, groups, count,
                     at<i64>(out), threads);
      },
      Release());
  m.def(
      "merge_copies",
      [](Address samples, i64 groups, i64 count, Address words, Address multiplicity, int threads) {
        return merge_copies(at<i64>(samples), groups, count, at<i64>(words),
                            at<float>(multiplicity), threads);
      },
      Release());
  m.def(
      "offsets",
      [](Address log_q, Address bias, double constant, Address words, i64 n, Address out,
         int threads) {
        offsets(at<double>(log_q), at<float>(bias), constant, at<i64>(words), n, at<float>(out),
                threads);
      },
      Release());
  m.def("fill_uniform", &fill_uniform, Release());
  m.def("gather", &gather, Release());
  m.def("words", &words, Release());
  m.def("rounds", &rounds, Release());
  m.def("scale_hidden", &scale_hidden, Release());
  m.def("hidden_gradient", &hidden_gradient, Release());
  m.def("convert", &convert, Release());
  m.def("log_sum", &log_sum, Release());
  m.def(
      "collect_rows",
      [](Address gradient_rows, i64 n, Address rows, Address start, Address order) {
        return collect_rows(at<i64>(gradient_rows), n, at<i64>(rows), at<i64>(start),
                            at<int32_t>(order));
      },
      Release());
  m.def("sum_rows", &sum_rows, Release());
  m.def("squared_norm", &squared_norm, Release());
  m.def("dense_squared_norm", &dense_squared_norm, Release());
  m.def("exact_aging", &exact_aging, Release());
  m.def("update_rows", &update_rows, Release());
  m.def("update_dense", &update_dense, Release());
  m.def("adam_rows", &adam_rows, Release());
  m.def("adam_dense", &adam_dense, Release());
  m.def("step_forward", &step_forward, Release());
  m.def("step_backward", &step_backward, Release());
}
