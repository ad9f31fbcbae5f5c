// Tensors by name, in a safetensors file.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "io/base/safetensors.h"

namespace melete {

using TensorMap = std::map<std::string, at::Tensor>;

// CPU tensors that share the file's private mapping (changing one does not change the file).
TensorMap read_tensors(const std::string& path);
TensorMap read_tensors(const SafetensorsFile& file);

// Any device, any strides; one tensor at a time is brought to contiguous CPU memory where it is not there
// already.
void write_tensors(const std::string& path, const TensorMap& tensors, const TextMap& metadata = {});

}  // namespace melete
