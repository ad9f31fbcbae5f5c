// Files that torch.save wrote, and bare pickles (joblib, scikit-learn), as data: nothing in them is called.
#pragma once

#include <memory>
#include <string>

#include "io/base/pickle.h"

namespace melete {

// A `.pt`, `.pth`, `.th` or `.bin`: a zip archive (torch 1.6 and later) or the older run of pickles.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path, const UnpickleOptions& options = {});
  TorchFile(std::span<const std::byte> file, const std::string& where, const UnpickleOptions& options = {});

  const PickleValue& root() const { return tree_.root(); }
  const PickleTree& tree() const { return tree_; }
  bool legacy() const { return legacy_; }  // written before torch 1.6
  // Keeps the bytes of its tensors alive; private and writable.
  std::shared_ptr<void> mapping() const { return mapping_; }

 private:
  void read(std::span<const std::byte> file, const std::string& where, UnpickleOptions options);
  void read_zip(std::span<const std::byte> file, const std::string& where, const UnpickleOptions& options);
  void read_legacy(std::span<const std::byte> file, const std::string& where, const UnpickleOptions& options);

  std::shared_ptr<void> mapping_;
  PickleTree tree_;
  bool legacy_ = false;
};

// One bare pickle, such as joblib.dump writes it without compression. Numpy arrays are tensors of the tree.
class PickleFile {
 public:
  explicit PickleFile(const std::string& path, const UnpickleOptions& options = {});

  const PickleValue& root() const { return tree_.root(); }
  std::shared_ptr<void> mapping() const { return mapping_; }

 private:
  std::shared_ptr<void> mapping_;
  PickleTree tree_;
};

// Whether a file begins like one that torch.save wrote.
bool looks_like_torch_file(std::span<const std::byte> file);

}  // namespace melete
