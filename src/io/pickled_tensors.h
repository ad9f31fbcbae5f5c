// Tensors out of files that torch.save, joblib or pickle wrote.
#pragma once

#include <memory>
#include <string>

#include "io/base/torch_file.h"
#include "io/tensors.h"

namespace melete {

// A view of the file's private mapping where the bytes allow it, with the strides that were saved.
at::Tensor to_tensor(const PickleTensor& tensor, std::shared_ptr<void> mapping, const std::string& name);

// Every tensor below `root`: keys, numbers in lists and names of attributes joined by dots
// ("model.encoder.0.weight"). Values that are no tensors are left out.
TensorMap tensors_below(const PickleValue& root, const std::shared_ptr<void>& mapping,
                        const std::string& prefix = "");

// All tensors of a `.pt`, `.pth`, `.th` or `.bin`. For a part of it: TorchFile, find() and tensors_below().
TensorMap read_torch_tensors(const std::string& path);

}  // namespace melete
