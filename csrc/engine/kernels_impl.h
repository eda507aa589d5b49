// All kernels of one instruction set: included once by each isa_*.cpp.
#include "common/random.h"
#include "engine/kernels.h"

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
#include "engine/recurrence_impl.h"
#include "engine/rmsprop_impl.h"
#include "engine/tables_impl.h"

}  // namespace BLACKOUT_ISA

const Kernels BLACKOUT_KERNELS = {
    BLACKOUT_ISA_NAME,
    BLACKOUT_ISA::fill_uniform,
    BLACKOUT_ISA::gather,
    BLACKOUT_ISA::words,
    BLACKOUT_ISA::scale_hidden,
    BLACKOUT_ISA::hidden_gradient,
    BLACKOUT_ISA::convert,
    BLACKOUT_ISA::log_sum,
    BLACKOUT_ISA::sum_rows,
    BLACKOUT_ISA::squared_norms,
    BLACKOUT_ISA::sum_of_squares,
    BLACKOUT_ISA::update_rows,
    BLACKOUT_ISA::update_dense,
    BLACKOUT_ISA::step_forward,
    BLACKOUT_ISA::step_backward,
};

}  // namespace blackout
