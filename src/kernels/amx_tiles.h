// The product of two bf16 factors by AMX, which multiplies blocks of 16 x 16 words at once: four times and
// more what AVX-512's dot products do. See Bf16Tiles for what the arguments mean.
#pragma once

#include <cstdint>

namespace melete {

constexpr int64_t kAmxRows = 32;

// Whether the processor has it and the system lets this process use it (asked once, which Linux wants).
bool has_amx();

void amx_begin();
void amx_end();
void amx_tile(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t words, const float* start,
              int64_t start_step, float* c, int64_t c_step, int64_t rows, int64_t columns);

}  // namespace melete
