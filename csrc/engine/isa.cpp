// Chooses the instruction set: the best the processor has, or what BLACKOUT_ISA asks for.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "engine/kernels.h"

namespace blackout {
namespace {

bool has_avx2() {
#if defined(BLACKOUT_X86)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(BLACKOUT_X86)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool has_avx512bf16() {
#if defined(BLACKOUT_X86)
  return has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

const Kernels &choose() {
  const char *variable = std::getenv("BLACKOUT_ISA");
  const std::string asked = variable ? variable : "";
  if (asked == "portable") return portable_kernels;
#if defined(BLACKOUT_X86)
  if (has_avx512bf16() && (asked.empty() || asked == "avx512bf16")) return avx512bf16_kernels;
  if (has_avx512() && (asked.empty() || asked == "avx512")) return avx512_kernels;
  if (has_avx2() && (asked.empty() || asked == "avx2")) return avx2_kernels;
#endif
  if (asked.empty()) return portable_kernels;
  throw std::runtime_error("BLACKOUT_ISA is \"" + asked +
                           "\": not portable, avx2, avx512 or avx512bf16, or this processor lacks it");
}

}  // namespace

const Kernels &kernels() {
  static const Kernels &chosen = choose();
  return chosen;
}

}  // namespace blackout
