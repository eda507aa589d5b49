#include "engine/multiply.h"

#include "common/checked_size.h"
#include "engine/buffers.h"
#include "engine/parallel.h"

namespace blackout {
namespace {

Numbers matrix(const Operand &of, i64 number) {
  const i64 place = number * of.batch_step * (of.data.half ? 2 : 4);
  return {static_cast<char *>(of.data.data) + place, of.data.half};
}

// Memory for the packed right operand of one product at a time.
class Packed {
 public:
  explicit Packed(const MultiplyArgs &args)
      : buffer_(take_buffer(checked_multiply(
            static_cast<size_t>(panel_numbers(args.depth, args.columns)),
            static_cast<size_t>(args.right.data.half ? 2 : 4)))),
        panels_{{buffer_->data, args.right.data.half}, args.depth, args.columns} {}
  Packed(const Packed &) = delete;
  Packed &operator=(const Packed &) = delete;
  ~Packed() { give_back_buffer(buffer_); }

  const Panels &panels() const { return panels_; }

 private:
  Buffer *buffer_;
  Panels panels_;
};

void one(const MultiplyArgs &args, i64 number, const Panels &panels, int threads) {
  const Operand &left = args.left, &right = args.right;
  const bool as_rows = right.column_step == 1;
  const PackArgs packing{matrix(right, number), as_rows ? right.row_step : right.column_step,
                         nullptr, panels};
  const i64 n = as_rows ? args.depth : args.columns;
  parallel_ranges((n + kPackUnit - 1) / kPackUnit, 8, threads, [&](i64 begin, i64 end) {
    const i64 last = end * kPackUnit < n ? end * kPackUnit : n;
    (as_rows ? kernels().pack_rows : kernels().pack_columns)(packing, begin * kPackUnit, last);
  });
  const ProductArgs product{matrix(left, number), left.row_step, left.column_step, panels,
                            matrix(args.out, number), args.out.row_step, false};
  parallel_ranges(args.rows, product_grain(args.depth, args.columns), threads,
                  [&](i64 begin, i64 end) { kernels().product(product, begin, end); });
}

}  // namespace

void multiply(const MultiplyArgs &args, int threads) {
  // Products of their own for each thread where there are enough, else all threads at each.
  const bool apart = args.batch >= 2 * threads;
  parallel_ranges(args.batch, 1, apart ? threads : 1, [&](i64 begin, i64 end) {
    const Packed packed(args);
    for (i64 number = begin; number < end; ++number)
      one(args, number, packed.panels(), apart ? 1 : threads);
  });
}

}  // namespace blackout
