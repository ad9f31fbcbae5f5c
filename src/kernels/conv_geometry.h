// Where the windows of a convolution over a picture lie.
#pragma once

#include <array>
#include <cstdint>

namespace melete {

struct ConvGeometry {
  std::array<int64_t, 2> stride, padding;  // of height and width
};

}  // namespace melete
