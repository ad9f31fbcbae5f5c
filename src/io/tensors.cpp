#include "io/tensors.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr std::pair<DType, at::ScalarType> kTypes[] = {
    {DType::f64, at::kDouble},    {DType::f32, at::kFloat}, {DType::f16, at::kHalf},
    {DType::bf16, at::kBFloat16}, {DType::i64, at::kLong},  {DType::i32, at::kInt},
    {DType::i16, at::kShort},     {DType::i8, at::kChar},   {DType::u8, at::kByte},
    {DType::boolean, at::kBool}};

at::ScalarType scalar_type(DType dtype) {
  for (const auto& [ours, theirs] : kTypes)
    if (ours == dtype) return theirs;
  fail("[tensors] element type {} has no counterpart", dtype_name(dtype));
}

DType dtype_of(const std::string& name, const at::Tensor& tensor) {
  for (const auto& [ours, theirs] : kTypes)
    if (theirs == tensor.scalar_type()) return ours;
  fail(
      "[tensors] '{}' has element type {}, which a safetensors file cannot hold; try converting it to "
      "float32",
      name, c10::toString(tensor.scalar_type()));
}

}  // namespace

TensorMap read_tensors(const SafetensorsFile& file) {
  TensorMap result;
  for (const TensorBytes& tensor : file.tensors()) {
    const auto options = at::TensorOptions().dtype(scalar_type(tensor.dtype));
    if (tensor.bytes.empty()) {
      result.emplace(tensor.name, at::empty(tensor.shape, options));
      continue;
    }
    void* data = const_cast<std::byte*>(tensor.bytes.data());
    if (reinterpret_cast<uintptr_t>(data) % byte_size(tensor.dtype) == 0) {
      result.emplace(tensor.name, at::from_blob(
                                      data, tensor.shape, [owner = file.mapping()](void*) {}, options));
    } else {  // another program's file: the bytes have to move to an address that fits the type
      at::Tensor copy = at::empty(tensor.shape, options);
      std::memcpy(copy.data_ptr(), data, tensor.bytes.size());
      result.emplace(tensor.name, std::move(copy));
    }
  }
  return result;
}

TensorMap read_tensors(const std::string& path) {
  return read_tensors(SafetensorsFile(path));
}

std::vector<TensorBytes> tensor_bytes(const TensorMap& tensors, std::vector<at::Tensor>& keep) {
  std::vector<TensorBytes> result;
  result.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    require(tensor.defined(), "[tensors] '{}' has no value", name);
    const DType dtype = dtype_of(name, tensor);
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    keep.push_back(plain);
    result.push_back(
        {name,
         dtype,
         plain.sizes().vec(),
         {static_cast<const std::byte*>(plain.data_ptr()), static_cast<size_t>(plain.nbytes())}});
  }
  return result;
}

void write_tensors(const std::string& path, const TensorMap& tensors, const TextMap& metadata) {
  std::vector<at::Tensor> keep;
  write_safetensors(path, tensor_bytes(tensors, keep), metadata);
}

}  // namespace melete
