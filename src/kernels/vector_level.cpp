#include "kernels/vector_level.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "kernels/amx_tiles.h"

namespace melete {

namespace {

VectorLevel of_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return has_amx() && __builtin_cpu_supports("avx512bf16") ? VectorLevel::amx : VectorLevel::v4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return VectorLevel::v3;
#endif
  return VectorLevel::plain;
}

VectorLevel chosen() {
  const VectorLevel best = of_processor();
  const char* const wish = std::getenv("MELETE_KERNELS");
  if (!wish) return best;
  for (const VectorLevel level : {VectorLevel::plain, VectorLevel::v3, VectorLevel::v4, VectorLevel::amx})
    if (std::string_view(wish) == name_of(level)) return std::min(level, best);
  fail("[MELETE_KERNELS] expected plain, v3, v4 or amx, got {}", wish);
}

}  // namespace

VectorLevel vector_level() {
  static const VectorLevel level = chosen();
  return level;
}

const char* name_of(VectorLevel level) {
  constexpr const char* kNames[] = {"plain", "v3", "v4", "amx"};
  return kNames[static_cast<int>(level)];
}

}  // namespace melete
