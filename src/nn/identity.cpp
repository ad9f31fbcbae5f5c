#include "nn/identity.h"

#include "core/base/error.h"
#include "io/base/checksum.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

void drop_default(Json& settings, const Json& defaults, const std::string& name) {
  const size_t dot = name.find('.');
  const std::string first = name.substr(0, dot);
  require(settings.contains(first) && defaults.contains(first),
          "[identity] there is no setting `{}` to leave out", name);
  if (dot != std::string::npos) return drop_default(settings[first], defaults[first], name.substr(dot + 1));
  if (settings[first] == defaults[first]) settings.erase(first);
}

}  // namespace

std::string identity_of(const std::string& kind, const Json& settings, const TensorMap& tensors) {
  Checksum sum;
  sum.add(kind);
  sum.add(settings.dump());
  std::vector<at::Tensor> keep;
  for (const TensorBytes& tensor : tensor_bytes(tensors, keep)) {
    sum.add(tensor.name);
    sum.add(dtype_name(tensor.dtype));
    for (const int64_t size : tensor.shape) sum.add(size);
    sum.add(tensor.bytes);
  }
  return sum.hex();
}

Json identifying_settings(Json settings, const Json& defaults, const YoungerSettings& younger) {
  for (const std::string& name : younger) drop_default(settings, defaults, name);
  return settings;
}

}  // namespace melete
