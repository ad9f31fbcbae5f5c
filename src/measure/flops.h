// Counts the floating-point operations of convolutions and matrix products while something runs.
#pragma once

#include <functional>

namespace melete {

// Multiplications and additions, forward and backward, on this thread and autograd's.
double count_flops(const std::function<void()>& run);

}  // namespace melete
