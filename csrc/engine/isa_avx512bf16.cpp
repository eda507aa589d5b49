// The kernels for processors with avx512 and its bfloat16 products; compiled with its own flags
// (CMakeLists.txt).
#if defined(BLACKOUT_X86)
#define BLACKOUT_ISA avx512bf16
#define BLACKOUT_KERNELS avx512bf16_kernels
#define BLACKOUT_ISA_NAME "avx512bf16"
#define BLACKOUT_LANES 16
#include "engine/kernels_impl.h"
#endif
