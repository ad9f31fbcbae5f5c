// Which of the hand-written kernels this process uses.
#pragma once

namespace melete {

// portable; x86-64-v3 (AVX2, FMA); x86-64-v4 (AVX-512); that and AMX for products of bf16
enum class VectorLevel { plain, v3, v4, amx };

// The best that the processor has; MELETE_KERNELS=plain | v3 | v4 takes a lower one, for tests and
// comparisons. Asked once.
VectorLevel vector_level();
const char* name_of(VectorLevel level);

}  // namespace melete
