// The kernels for any processor the compiler knows; compiled with its own flags (CMakeLists.txt).
#define BLACKOUT_ISA portable
#define BLACKOUT_KERNELS portable_kernels
#define BLACKOUT_ISA_NAME "portable"
#define BLACKOUT_LANES 4
#include "engine/kernels_impl.h"
