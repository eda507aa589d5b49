// All kernels of one instruction set: included once by each isa_*.cpp.
#if defined(BLACKOUT_X86)
#include <immintrin.h>
#endif

#include "common/random.h"
#include "engine/kernels.h"
#include "engine/product.h"

namespace blackout {
namespace BLACKOUT_ISA {

#include "engine/vec.h"

// Calls body with a typed pointer for the number format of `numbers`.
template <class F> inline void typed(Numbers numbers, F &&body) {
  if (numbers.half)
    body(static_cast<bf16 *>(numbers.data));
  else
    body(static_cast<float *>(numbers.data));
}

#include "engine/objectives_impl.h"
#include "engine/output_impl.h"
#include "engine/rounds_impl.h"
#include "engine/paths_impl.h"
#include "engine/product_pack_impl.h"
#include "engine/product_tile_impl.h"
#include "engine/product_left_impl.h"
#include "engine/product_impl.h"
#include "engine/recurrence_impl.h"
#include "engine/cells_impl.h"
#include "engine/rmsprop_impl.h"
#include "engine/adam_impl.h"
#include "engine/tables_impl.h"

}  // namespace BLACKOUT_ISA

const Kernels BLACKOUT_KERNELS = {
    BLACKOUT_ISA_NAME,
    BLACKOUT_ISA::fill_uniform,
    BLACKOUT_ISA::gather,
    BLACKOUT_ISA::words,
    BLACKOUT_ISA::round_one,
    BLACKOUT_ISA::round_two,
    BLACKOUT_ISA::round_three,
    BLACKOUT_ISA::scale_hidden,
    BLACKOUT_ISA::hidden_gradient,
    BLACKOUT_ISA::convert,
    BLACKOUT_ISA::log_sum,
    BLACKOUT_ISA::paths,
    BLACKOUT_ISA::path_rows,
    BLACKOUT_ISA::sum_rows,
    BLACKOUT_ISA::squared_norms,
    BLACKOUT_ISA::sum_of_squares,
    BLACKOUT_ISA::update_rows,
    BLACKOUT_ISA::update_dense,
    BLACKOUT_ISA::adam_rows,
    BLACKOUT_ISA::adam_dense,
    BLACKOUT_ISA::step_forward,
    BLACKOUT_ISA::step_backward,
    BLACKOUT_ISA::cell_forward,
    BLACKOUT_ISA::cell_backward,
    BLACKOUT_ISA::column_sums,
    BLACKOUT_ISA::drop,
    BLACKOUT_ISA::pack_rows,
    BLACKOUT_ISA::pack_columns,
    BLACKOUT_ISA::product,
};

}  // namespace blackout
