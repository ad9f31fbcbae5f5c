// A wave file in memory.
#pragma once

#include <span>
#include <string>

namespace melete {

std::string wave_bytes(std::span<const float> mono, int rate_hz);  // 16 bits, clamped to [-1, 1]

}  // namespace melete
