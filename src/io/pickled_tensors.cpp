#include "io/pickled_tensors.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "io/base/mapped_file.h"

namespace melete {

namespace {

constexpr std::pair<std::string_view, at::ScalarType> kPickledTypes[] = {{"float64", at::kDouble},
                                                                         {"float32", at::kFloat},
                                                                         {"float16", at::kHalf},
                                                                         {"bfloat16", at::kBFloat16},
                                                                         {"int64", at::kLong},
                                                                         {"int32", at::kInt},
                                                                         {"int16", at::kShort},
                                                                         {"int8", at::kChar},
                                                                         {"uint8", at::kByte},
                                                                         {"bool", at::kBool},
                                                                         {"complex64", at::kComplexFloat},
                                                                         {"complex128", at::kComplexDouble}};

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

class Collector {
 public:
  Collector(const std::shared_ptr<void>& mapping, TensorMap& result) : mapping_(mapping), result_(result) {}

  void walk(const PickleValue& value, const std::string& name) {
    if (const PickleTensor* tensor = value.tensor()) {
      if (tensor->dtype || tensor->element.starts_with("complex"))
        result_.insert_or_assign(name, to_tensor(*tensor, mapping_, name));
      return;
    }
    if (const PickleValue::Items* items = value.items())
      for (size_t i = 0; i < items->size(); ++i) walk(*(*items)[i], joined(name, std::to_string(i)));
    if (const PickleDict* dict = value.dict())
      for (const auto& [key, held] : dict->entries) {
        const auto number = key->integer();
        if (key->text())
          walk(*held, joined(name, *key->text()));
        else if (number)
          walk(*held, joined(name, std::to_string(*number)));
      }
    if (const PickleObject* object = value.object())
      if (object->state) walk(*object->state, name);
  }

 private:
  const std::shared_ptr<void>& mapping_;
  TensorMap& result_;
};

}  // namespace

at::Tensor to_tensor(const PickleTensor& tensor, std::shared_ptr<void> mapping, const std::string& name) {
  const at::ScalarType* type = nullptr;
  for (const auto& [element, scalar] : kPickledTypes)
    if (element == tensor.element) type = &scalar;
  require(type != nullptr, "[tensors] '{}' has element type {}, which melete does not know", printable(name),
          tensor.element);
  const auto options = at::TensorOptions().dtype(*type);
  if (tensor.numel() == 0) return at::empty(tensor.shape, options);
  void* data = const_cast<std::byte*>(tensor.bytes.data());
  const size_t alignment = c10::isComplexType(*type) ? tensor.element_bytes / 2 : tensor.element_bytes;
  if (mapping && tensor.in_input && reinterpret_cast<uintptr_t>(data) % alignment == 0)
    return at::from_blob(
        data, tensor.shape, tensor.strides, [owner = std::move(mapping)](void*) {}, options);
  // Not at an address that fits the type, or not in a mapping: the bytes have to move. A tensor that covers
  // its storage many times over (a hostile stride of 0) would need memory that the file does not justify.
  const auto wanted = static_cast<size_t>(tensor.numel()) * tensor.element_bytes;
  require(wanted <= tensor.bytes.size(),
          "[tensors] '{}' repeats the {} bytes of its storage to fill {}; try saving a contiguous copy",
          printable(name), tensor.bytes.size(), wanted);
  at::Tensor copy = at::empty(tensor.shape, options);
  copy_contiguous(tensor, {static_cast<std::byte*>(copy.data_ptr()), wanted});
  return copy;
}

TensorMap tensors_below(const PickleValue& root, const std::shared_ptr<void>& mapping,
                        const std::string& prefix) {
  TensorMap result;
  Collector(mapping, result).walk(root, prefix);
  return result;
}

TensorMap read_torch_tensors(const std::string& path) {
  const TorchFile file(path);
  return tensors_below(file.root(), file.mapping());
}

}  // namespace melete
