#include "train/exporter.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/version.h"
#include "io/base/torch_writer.h"
#include "train/torch_optimiser.h"

namespace melete {

namespace {

at::ScalarType scalar_type(const std::string& name) {
  static const std::map<std::string, at::ScalarType> types = {
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},     {"int32", at::kInt},     {"int16", at::kShort},  {"int8", at::kChar},
      {"uint8", at::kByte},     {"bool", at::kBool}};
  const auto found = types.find(name);
  require(found != types.end(), "[export] a tensor of type {}", name);
  return found->second;
}

}  // namespace

std::vector<std::string> Exporter::write_torch(const std::string& out, const ExportRequest& request) {
  request_ = request;
  Json tree;
  if (request.purpose != ExportFor::training) {
    tree = weights_tree(request.purpose);
  } else if (checkpoint_.meta.contains("foreign")) {
    tree = checkpoint_.meta["foreign"]["tree"];
    collect(tree);
  } else {
    tree = training_tree();
  }
  std::vector<at::Tensor> keep;
  std::map<std::string, TensorBytes> bytes;
  for (TensorBytes& tensor : tensor_bytes(tensors_, keep)) bytes.emplace(tensor.name, std::move(tensor));
  write_torch_file(out, tree, bytes);
  return notes_;
}

std::vector<std::string> Exporter::write_ours(const std::string& out, const ExportRequest& request) {
  request_ = request;
  Checkpoint made;
  for (const std::string& name : names())
    if (request.purpose != ExportFor::inference || used_in_inference(name))
      made.tensors["model." + name] = wanted(name);
  made.meta = checkpoint_.meta;
  made.meta.erase("foreign");
  made.meta["holds"] = request.purpose == ExportFor::inference ? "inference" : "finetune";
  made.meta["version"] = version();
  save_checkpoint(out, made);
  return notes_;
}

void sort_as_registered(std::vector<std::string>& names, const std::vector<std::string>& order) {
  const auto key = [&](const std::string& name) {
    std::vector<int64_t> result;
    for (size_t at = 0; at <= name.size();) {
      const size_t dot = std::min(name.find('.', at), name.size());
      const std::string word = name.substr(at, dot - at);
      const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
      const auto place = std::find(order.begin(), order.end(), word);
      require(number || place != order.end(), "[export] no place is known for `{}`", name);
      result.push_back(number ? std::stoll(word) : place - order.begin());
      at = dot + 1;
    }
    return result;
  };
  std::sort(names.begin(), names.end(),
            [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
}

std::vector<std::string> tensor_names(const torch::nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& item : module.named_parameters()) all.push_back(item.key());
  for (const auto& item : module.named_buffers()) all.push_back(item.key());
  return all;
}

at::Tensor Exporter::stored(const std::string& key) const {
  const auto found = checkpoint_.tensors.find(key);
  require(found != checkpoint_.tensors.end(), "[export] {} has no `{}`; was it made for inference?", path_,
          key);
  return found->second;
}

at::Tensor Exporter::wanted(const std::string& ours) const {
  const auto average = checkpoint_.tensors.find("ema.average." + ours);
  return request_.weights == Weights::best && average != checkpoint_.tensors.end() ? average->second
                                                                                   : stored("model." + ours);
}

nlohmann::ordered_json Exporter::reference(const std::string& name, const at::Tensor& tensor) {
  tensors_[name] = tensor;
  return {{"$tensor", name}};
}

nlohmann::ordered_json Exporter::optimiser_state(const std::string& place, const std::string& phase,
                                                 std::vector<std::string> parameters, const Json& settings) {
  return torch_optimiser_state(
      checkpoint_, {phase, std::move(parameters), settings, place, path_},
      [this](const std::string& name, const at::Tensor& tensor) { return reference(name, tensor); });
}

std::string Exporter::release(const std::string& known) const {
  return checkpoint_.meta.contains("foreign") ? checkpoint_.meta["foreign"]["tree"].value("version", known)
                                              : known;
}

void Exporter::collect(Json& value) {
  if (!value.is_structured()) return;
  if (value.is_object() && value.contains("$tensor")) {
    const std::string key = value["$tensor"].get<std::string>();
    const auto shape = value.at("shape").get<std::vector<int64_t>>();
    const std::string type = value.at("type").get<std::string>();
    // The same key may be written in two ways (a codebook has a leading dimension there).
    value = reference(fmt::format("{}|{}|{}", key, fmt::join(shape, ","), type),
                      stored(key).reshape(shape).to(scalar_type(type)));
    return;
  }
  for (auto& item : value) collect(item);
}

}  // namespace melete
