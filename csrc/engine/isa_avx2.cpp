// The kernels for processors with avx2; compiled with its own flags (CMakeLists.txt).
#if defined(BLACKOUT_X86)
#define BLACKOUT_ISA avx2
#define BLACKOUT_KERNELS avx2_kernels
#define BLACKOUT_ISA_NAME "avx2"
#define BLACKOUT_LANES 8
#include "engine/kernels_impl.h"
#endif
