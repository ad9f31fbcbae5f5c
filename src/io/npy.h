// NumPy's .npy files.
#pragma once

#include <ATen/ATen.h>

#include <string>

namespace melete {

// float32 or int64, any strides and device; through AtomicFile.
void write_npy(const std::string& path, const at::Tensor& tensor);

}  // namespace melete
