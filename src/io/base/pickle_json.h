// Python values as JSON and back, so that what a foreign checkpoint says besides its tensors can be kept in
// ours and written out again. Plain values are themselves; the rest is an object with one tag:
//   {"$tuple": [...]}  {"$dict": [[key, value], ...]}  {"$ordered": [[key, value], ...]}  {"$bytes": "hex"}
//   {"$float": "nan"}  {"$name": "torch.float32"}  {"$tensor": "name", ...}  {"$object": "class", ...}
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "io/base/pickle.h"

namespace melete {

// `path`: where the tensor is, keys joined by dots.
using TensorToJson = std::function<nlohmann::ordered_json(const PickleTensor&, const std::string& path)>;
nlohmann::ordered_json pickle_to_json(const PickleValue& value, const TensorToJson& tensor,
                                      const std::string& path = "");

// The pickle (protocol 2) of such JSON. `tensor` gives the opcodes of a "$tensor" object. Objects of other
// classes than dicts cannot be written.
using TensorOpcodes = std::function<std::string(const nlohmann::ordered_json&)>;
std::string json_to_pickle(const nlohmann::ordered_json& value, const TensorOpcodes& tensor = {});

}  // namespace melete
