// Vectors of a chosen width, for kernels that are written once and compiled for several instruction sets by
// hand, because their tiles are sized by the registers.
#pragma once

#include <cstdint>

#include "kernels/vector_level.h"
#include "kernels/vector_targets.h"

namespace melete {

template <int Width>
struct Lanes {
  typedef float Vector __attribute__((vector_size(Width * 4)));
  typedef float InMemory __attribute__((vector_size(Width * 4), aligned(4), may_alias));
  typedef int32_t Integers __attribute__((vector_size(Width * 4)));
};

template <int Width>
MELETE_INLINE void load(typename Lanes<Width>::Vector& x, const float* from) {
  x = *reinterpret_cast<const typename Lanes<Width>::InMemory*>(from);
}
template <int Width>
MELETE_INLINE void store(const typename Lanes<Width>::Vector& x, float* to) {
  *reinterpret_cast<typename Lanes<Width>::InMemory*>(to) = x;
}

// The set of kernels for this machine, of those compiled with 128, 256 and 512 bits (SSE or portable,
// x86-64-v3, x86-64-v4). Chosen at the first call.
template <class Kernels>
const Kernels& best_of(const Kernels& plain) {
  static const Kernels best = plain;
  return best;
}
#if defined(__x86_64__)
template <class Kernels>
const Kernels& best_of(const Kernels& plain, const Kernels& v3, const Kernels& v4) {
  static const Kernels best = vector_level() >= VectorLevel::v4   ? v4
                              : vector_level() == VectorLevel::v3 ? v3
                                                                  : plain;
  return best;
}
#endif

}  // namespace melete
