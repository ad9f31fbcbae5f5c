// Looking into files of other programs, and making broken ones, for tests of imports and exports.
#pragma once

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

// The Python that reads our files: $MELETE_PYTHON, a command that may set a path or enter a chroot.
inline std::string python() {
  const char* given = std::getenv("MELETE_PYTHON");
  return given == nullptr ? "/usr/bin/python3" : given;
}

inline bool python_has(const std::string& module) {
  return std::system((python() + " -c 'import " + module + "' >/dev/null 2>&1").c_str()) == 0;
}

// Runs Python with torch on `script`, which has same(a, b, where): two loaded trees are equal to the last
// bit; it returns the number of tensors. What is given follows as sys.argv[1:]. True when the script ended
// well.
inline bool run_python(const std::string& folder, const std::string& script,
                       const std::vector<std::string>& given) {
  const std::string path = folder + "/compare.py";
  std::ofstream(path) << R"(
import sys, torch
def same(a, b, at):
    assert type(a) is type(b), (at, type(a), type(b))
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, (at, a.dtype, b.dtype, a.shape, b.shape)
        assert a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes(), at
        return 1
    if isinstance(a, dict):
        assert list(a) == list(b), (at, list(a), list(b))
        return sum(same(a[k], b[k], at + '.' + str(k)) for k in a)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), at
        return sum(same(x, y, at + '.' + str(i)) for i, (x, y) in enumerate(zip(a, b)))
    assert a == b, (at, a, b)
    return 0
)" << script;
  std::string command = python() + " " + path;
  for (const std::string& each : given) command += " " + each;
  return std::system(command.c_str()) == 0;
}

inline bool python_has_torch() {
  return python_has("torch");
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
