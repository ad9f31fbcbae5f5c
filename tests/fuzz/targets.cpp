#include "targets.h"

#include "core/base/error.h"
#include "io/base/pickle.h"
#include "io/base/pickle_json.h"
#include "io/base/safetensors.h"
#include "io/base/token_file.h"
#include "io/base/torch_file.h"

namespace melete::fuzz {

namespace {

using Bytes = std::span<const std::byte>;

// Whoever holds a tree walks over all of it.
void walk(const PickleValue& value) {
  const auto json = pickle_to_json(value, [](const PickleTensor& tensor, const std::string&) {
    uint64_t sum = 0;
    for (const std::byte b : tensor.bytes) sum += static_cast<uint64_t>(b);
    if (tensor.element_bytes > 0 && tensor.numel() >= 0 &&
        static_cast<size_t>(tensor.numel()) <= tensor.bytes.size() / tensor.element_bytes) {
      std::vector<std::byte> copy(static_cast<size_t>(tensor.numel()) * tensor.element_bytes);
      copy_contiguous(tensor, copy);
    }
    return nlohmann::ordered_json(sum);
  });
  (void)json;
}

bool tokens(Bytes bytes) {
  const TokenFile file(bytes, "fuzz");
  for (int64_t begin = 0; begin < file.frames(); begin += 64)
    (void)file.codes(begin, std::min<int64_t>(64, file.frames() - begin));
  return true;
}

bool torch_file(Bytes bytes) {
  const TorchFile file(bytes, "fuzz");
  walk(file.root());
  return true;
}

bool pickle(Bytes bytes) {
  const PickleTree tree = unpickle(bytes, "fuzz");
  walk(tree.root());
  return true;
}

bool safetensors(Bytes bytes) {
  std::vector<TensorBytes> tensors;
  TextMap metadata;
  parse_safetensors(bytes, "fuzz", tensors, metadata);
  uint64_t sum = 0;
  for (const TensorBytes& tensor : tensors)
    for (const std::byte b : tensor.bytes) sum += static_cast<uint64_t>(b);
  return sum != 1;
}

template <bool (*reader)(Bytes)>
bool guarded(Bytes bytes) {
  try {
    return reader(bytes);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> table = {{"tokens", guarded<tokens>},
                                            {"torch", guarded<torch_file>},
                                            {"pickle", guarded<pickle>},
                                            {"safetensors", guarded<safetensors>}};
  return table;
}

}  // namespace melete::fuzz
