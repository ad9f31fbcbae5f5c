#include "run/checkpoint.h"

#include "core/base/error.h"
#include "io/base/checksum.h"

namespace melete {

namespace {

using nlohmann::ordered_json;

constexpr const char* kVersionKey = "melete.checkpoint";
constexpr const char* kMetaKey = "melete.meta";
constexpr const char* kChecksumKey = "melete.xxh3";
constexpr int kVersion = 1;

// Over everything that the file says: every metadata text but the checksum itself, and every tensor with its
// name, type and shape, by name (the order of the bytes is the writer's affair).
std::string checksum_of(const TextMap& metadata, const std::vector<TensorBytes>& tensors) {
  Checksum sum;
  for (const auto& [key, text] : metadata) {
    if (key == kChecksumKey) continue;
    sum.add(key);
    sum.add(text);
  }
  std::map<std::string_view, const TensorBytes*> by_name;
  for (const TensorBytes& tensor : tensors) by_name[tensor.name] = &tensor;
  for (const auto& [name, tensor] : by_name) {
    sum.add(name);
    sum.add(dtype_name(tensor->dtype));
    sum.add(static_cast<int64_t>(tensor->shape.size()));
    for (const int64_t size : tensor->shape) sum.add(size);
    sum.add(tensor->bytes);
  }
  return sum.hex();
}

ordered_json parse_meta(const std::string& path, const TextMap& metadata) {
  const auto version = metadata.find(kVersionKey);
  const auto meta = metadata.find(kMetaKey);
  require(
      version != metadata.end() && meta != metadata.end() && metadata.count(kChecksumKey) == 1,
      "[{}] not a checkpoint of melete: its metadata lack {}, {} or {}; a file of weights alone is read by "
      "'melete import'",
      path, kVersionKey, kMetaKey, kChecksumKey);
  const std::string& text = version->second;
  require(!text.empty() && text.size() < 9 && text.find_first_not_of("0123456789") == std::string::npos,
          "[{}] not a checkpoint of melete: its version is '{}'", path, text.substr(0, 40));
  const int number = std::stoi(text);
  require(
      number <= kVersion,
      "[{}] written by a newer melete (checkpoint version {}, this one reads up to {}); try updating melete",
      path, number, kVersion);
  ordered_json result = ordered_json::parse(meta->second, nullptr, false);
  require(result.is_object(), "[{}] damaged checkpoint: its description is not a JSON object", path);
  const auto step = result.find("step");
  require(step != result.end() && step->is_number_integer() && step->get<int64_t>() >= 0,
          "[{}] damaged checkpoint: its description has no step", path);
  return result;
}

}  // namespace

int64_t Checkpoint::step() const {
  require(meta.is_object() && meta.contains("step") && meta["step"].is_number_integer(),
          "[checkpoint] expected an integer \"step\" in its description");
  return meta["step"].get<int64_t>();
}

TensorMap Checkpoint::part(const std::string& prefix) const {
  TensorMap result;
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it)
    result.emplace(it->first.substr(prefix.size()), it->second);
  return result;
}

void Checkpoint::add(const std::string& prefix, const TensorMap& part) {
  for (const auto& [name, tensor] : part)
    require(tensors.emplace(prefix + name, tensor).second, "[checkpoint] '{}{}' was added twice", prefix,
            name);
}

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  require(checkpoint.step() >= 0, "[checkpoint] expected a step of 0 or more, got {}", checkpoint.step());
  TextMap metadata;
  metadata[kVersionKey] = std::to_string(kVersion);
  try {
    metadata[kMetaKey] = checkpoint.meta.dump();
  } catch (const nlohmann::json::exception& error) {
    fail("[write {}] the checkpoint's description cannot be written as JSON: {}", path, error.what());
  }
  std::vector<at::Tensor> keep;
  const std::vector<TensorBytes> tensors = tensor_bytes(checkpoint.tensors, keep);
  metadata[kChecksumKey] = checksum_of(metadata, tensors);
  write_safetensors(path, tensors, metadata);
}

Checkpoint load_checkpoint(const std::string& path) {
  const SafetensorsFile file(path);
  Checkpoint result;
  result.meta = parse_meta(path, file.metadata());
  require(checksum_of(file.metadata(), file.tensors()) == file.metadata().at(kChecksumKey),
          "[{}] damaged checkpoint: its checksum does not match its content; try an earlier one", path);
  result.tensors = read_tensors(file);
  return result;
}

bool is_checkpoint(const std::string& path) {
  return SafetensorsFile(path).metadata().count(kVersionKey) > 0;
}

ordered_json read_checkpoint_meta(const std::string& path) {
  return parse_meta(path, SafetensorsFile(path).metadata());
}

}  // namespace melete
