// Tensors by name, in a safetensors file.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "io/base/safetensors.h"

namespace melete {

using TensorMap = std::map<std::string, at::Tensor>;

// CPU tensors that share the file's private mapping (changing one does not change the file).
TensorMap read_tensors(const std::string& path);
TensorMap read_tensors(const SafetensorsFile& file);

// Any device, any strides: a tensor that is not in contiguous CPU memory is copied there first.
void write_tensors(const std::string& path, const TensorMap& tensors, const TextMap& metadata = {});

// Views of the tensors' bytes; what had to be copied lives in `keep`.
std::vector<TensorBytes> tensor_bytes(const TensorMap& tensors, std::vector<at::Tensor>& keep);

}  // namespace melete
