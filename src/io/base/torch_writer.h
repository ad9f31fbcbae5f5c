// Writing files that Python's torch.load reads.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "io/base/safetensors.h"

namespace melete {

// `tree`: as in io/base/pickle_json.h, with {"$tensor": name} for every tensor. The same tensor under two
// names of the tree is stored once. Appears whole or not at all.
void write_torch_file(const std::string& path, const nlohmann::ordered_json& tree,
                      const std::map<std::string, TensorBytes>& tensors);

}  // namespace melete
