// What a file of tensors or tokens holds, without building anything from it: safetensors, torch.save, pickle
// and token files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/base/pickle.h"

namespace melete {

struct FileTensor {
  std::string name;
  PickleTensor tensor;
};

struct FileContent {
  std::string path, format;                                // "safetensors", "torch (zip)", "tokens"
  std::vector<std::pair<std::string, std::string>> facts;  // step, task, settings, ...: text for people
  std::vector<FileTensor> tensors;
  std::shared_ptr<void> owner;  // of the tensors' bytes
};

FileContent read_file_content(const std::string& path);

struct TensorDifference {
  std::string name;
  std::string what;    // "only in the first", "shape [2, 3] and [3, 2]", "values"
  double largest = 0;  // absolute difference; of values
  int64_t differing = 0, count = 0;
};

// Differences by name, in order; equal tensors (bit by bit) are not listed but counted.
std::vector<TensorDifference> compare_files(const FileContent& first, const FileContent& second,
                                            int64_t& equal);

}  // namespace melete
