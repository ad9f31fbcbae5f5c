// Looking at what a pickle held.
#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "io/base/pickle.h"

namespace melete {

int64_t PickleTensor::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

bool PickleTensor::contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

const std::string* PickleValue::text() const {
  return std::get_if<std::string>(&data);
}

const PickleValue::Items* PickleValue::items() const {
  if (const PickleObject* thing = object()) return &thing->elements;
  return std::get_if<Items>(&data);
}

const PickleDict* PickleValue::dict() const {
  if (const PickleObject* thing = object()) return &thing->items;
  return std::get_if<PickleDict>(&data);
}

const PickleTensor* PickleValue::tensor() const {
  const auto* held = std::get_if<std::unique_ptr<PickleTensor>>(&data);
  return held ? held->get() : nullptr;
}

const PickleObject* PickleValue::object() const {
  const auto* held = std::get_if<std::unique_ptr<PickleObject>>(&data);
  return held ? held->get() : nullptr;
}

std::optional<int64_t> PickleValue::integer() const {
  if (const auto* value = std::get_if<int64_t>(&data)) return *value;
  if (const auto* value = std::get_if<bool>(&data)) return *value;
  return std::nullopt;
}

std::optional<double> PickleValue::number() const {
  if (const auto* value = std::get_if<double>(&data)) return *value;
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

const PickleValue* PickleValue::find(std::string_view key) const {
  if (const PickleDict* entries = dict())
    for (const auto& [name, value] : entries->entries)
      if (name->is(Kind::text) && *name->text() == key) return value;
  const PickleObject* thing = object();
  if (!thing || !thing->state) return nullptr;
  // With slots the state is a pair of dicts, either of which may be None.
  if (thing->state->is(Kind::tuple)) {
    for (const PickleValue* part : *thing->state->items())
      if (part->is(Kind::dict))
        if (const PickleValue* found = part->find(key)) return found;
    return nullptr;
  }
  return thing->state->is(Kind::dict) ? thing->state->find(key) : nullptr;
}

const PickleValue* PickleValue::find(int64_t key) const {
  if (const PickleDict* entries = dict())
    for (const auto& [name, value] : entries->entries)
      if (name->is(Kind::integer) && name->integer() == key) return value;
  return nullptr;
}

const PickleValue& PickleValue::at(std::string_view key, const std::string& where) const {
  const PickleValue* found = find(key);
  require(found != nullptr, "[{}] expected an entry '{}', there is none", where, printable(key));
  return *found;
}

std::string_view PickleValue::kind_name() const {
  switch (kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::bytes:
      return "bytes";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::set:
      return "set";
    case Kind::dict:
      return "dict";
    case Kind::tensor:
      return "tensor";
    case Kind::object:
      return "object";
    case Kind::name:
      return "name";
  }
  return "?";
}

namespace {

// Sizes and strides of a hostile file: every product is checked.
uint64_t reach_of(const PickleTensor& tensor, const std::string& where) {
  uint64_t last = 0, count = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    uint64_t step = 0;
    const auto size = static_cast<uint64_t>(tensor.shape[i]);
    require(tensor.shape[i] >= 0 && tensor.strides[i] >= 0,
            "[{}] damaged: a tensor has a negative size or stride", where);
    require(!__builtin_mul_overflow(count, size, &count) && count <= static_cast<uint64_t>(INT64_MAX),
            "[{}] damaged: a tensor has more elements than any machine holds", where);
    if (size == 0) continue;
    require(!__builtin_mul_overflow(size - 1, static_cast<uint64_t>(tensor.strides[i]), &step) &&
                !__builtin_add_overflow(last, step, &last),
            "[{}] damaged: a tensor's strides reach further than any machine", where);
  }
  return count == 0 ? 0 : last + 1;
}

}  // namespace

void PickleTree::bind(const std::function<std::span<const std::byte>(const PickleStorage&)>& bytes_of,
                      const std::string& where) {
  for (PickleStorage& storage : storages_) {
    storage.bytes = bytes_of(storage);
    const uint64_t held = storage.bytes.size() / storage.element_bytes;
    require(storage.elements >= 0 && static_cast<uint64_t>(storage.elements) <= held,
            "[{}] truncated or damaged: storage '{}' should hold {} elements, its bytes are enough for {}",
            where, printable(storage.key), storage.elements, held);
  }
  for (PickleTensor* tensor : tensors_) {
    const PickleStorage& storage = storages_[tensor->storage];
    const uint64_t reach = reach_of(*tensor, where);
    tensor->in_input = true;
    const uint64_t held = storage.bytes.size() / tensor->element_bytes;
    const auto offset = static_cast<uint64_t>(tensor->storage_offset);
    require(tensor->storage_offset >= 0 && offset <= held && reach <= held - offset,
            "[{}] damaged: a tensor reaches past the end of its storage '{}' ({} elements from {} on, it has "
            "{})",
            where, printable(storage.key), reach, offset, held);
    tensor->bytes = storage.bytes.subspan(offset * tensor->element_bytes, reach * tensor->element_bytes);
  }
}

void copy_contiguous(const PickleTensor& tensor, std::span<std::byte> out) {
  const size_t width = tensor.element_bytes;
  const int64_t count = tensor.numel();
  require(out.size() == static_cast<size_t>(count) * width, "[tensor] expected room for {} bytes, got {}",
          static_cast<size_t>(count) * width, out.size());
  if (count == 0) return;
  if (tensor.contiguous()) {
    std::memcpy(out.data(), tensor.bytes.data(), out.size());
    return;
  }
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + static_cast<size_t>(i) * width,
                tensor.bytes.data() + static_cast<size_t>(at) * width, width);
    for (size_t d = index.size(); d-- > 0;) {
      at += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      at -= tensor.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace melete
