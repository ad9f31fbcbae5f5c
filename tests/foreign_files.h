// Looking into files of other programs, and making broken ones, for tests of imports and exports.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "io/base/checksum.h"
#include "io/base/pickle_json.h"
#include "io/base/torch_file.h"
#include "io/base/torch_writer.h"

namespace melete::testing {

inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Whole trees, tensors by their bits.
inline nlohmann::ordered_json content(const std::string& path) {
  const TorchFile file(path);
  return pickle_to_json(file.root(), [](const PickleTensor& tensor, const std::string&) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.numel()) * tensor.element_bytes);
    copy_contiguous(tensor, bytes);
    Checksum sum;
    sum.add(bytes);
    return nlohmann::ordered_json{{"type", tensor.element}, {"shape", tensor.shape}, {"sum", sum.hex()}};
  });
}

// A .pt file that can be changed and written again; tensors of the tree are {"$tensor": name}.
struct EditableFile {
  explicit EditableFile(const std::string& path) : file(path) {
    tree = pickle_to_json(file.root(), [&](const PickleTensor& tensor, const std::string& name) {
      tensors[name] = {name, *tensor.dtype, tensor.shape, tensor.bytes};
      return nlohmann::ordered_json{{"$tensor", name}};
    });
  }
  void write(const std::string& path) const { write_torch_file(path, tree, tensors); }
  // The entry of an OrderedDict below `key` ("" for the root).
  void erase(const std::string& key, const std::string& name) {
    auto& entries = (key.empty() ? tree : tree.at(key)).at("$ordered");
    for (size_t i = 0; i < entries.size(); ++i)
      if (entries[i][0] == name) entries.erase(i--);
  }

  TorchFile file;
  nlohmann::ordered_json tree;
  std::map<std::string, TensorBytes> tensors;
};

}  // namespace melete::testing
