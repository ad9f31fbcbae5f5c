#include "studio/wave_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace melete {

std::string wave_bytes(std::span<const float> mono, int rate_hz) {
  std::string out;
  const auto number = [&out](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  const auto rate = static_cast<uint32_t>(rate_hz), data_bytes = static_cast<uint32_t>(mono.size() * 2);
  out += "RIFF";
  number(36 + data_bytes, 4);
  out += "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // PCM
  number(1, 2);  // channels
  number(rate, 4);
  number(rate * 2, 4);  // bytes a second
  number(2, 2);         // bytes a frame
  number(16, 2);        // bits
  out += "data";
  number(data_bytes, 4);
  for (const float sample : mono)
    number(static_cast<uint32_t>(std::lround(std::clamp(sample, -1.0f, 1.0f) * 32767)), 2);
  return out;
}

}  // namespace melete
