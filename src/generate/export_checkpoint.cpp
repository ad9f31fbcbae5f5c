#include "generate/export_checkpoint.h"

#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/version.h"
#include "generate/load_weights.h"
#include "interop/audiolm_pytorch_files.h"
#include "io/base/pickle_json.h"
#include "io/base/torch_writer.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

std::string to_hex(const std::string& bytes) {
  std::string result;
  for (const char c : bytes) result += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return result;
}

at::ScalarType scalar_type(const std::string& name) {
  static const std::map<std::string, at::ScalarType> types = {
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},     {"int32", at::kInt},     {"int16", at::kShort},  {"int8", at::kChar},
      {"uint8", at::kByte},     {"bool", at::kBool}};
  const auto found = types.find(name);
  require(found != types.end(), "[export] a tensor of type {}", name);
  return found->second;
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const std::string& path) : checkpoint_(checkpoint), path_(path) {
    const std::string task = checkpoint.meta.value("task", "");
    require(task == "soundstream", "[export] {} is a checkpoint of `{}`, which cannot be exported yet", path,
            task);
    schema_of(config_).apply(checkpoint.meta.at("config").at("model"));
    gan_ = SoundStreamGan(config_);
  }

  std::vector<std::string> write_torch(const std::string& out, ExportFor purpose) {
    Json tree;
    if (purpose == ExportFor::training) {
      require(checkpoint_.meta.contains("foreign"),
              "[export] --for training writes a package of audiolm-pytorch again, and {} was not imported "
              "from one; try --for finetune",
              path_);
      tree = checkpoint_.meta["foreign"]["tree"];
      collect(tree);
    } else {
      tree = weights_tree(purpose == ExportFor::finetune);
    }
    std::map<std::string, at::Tensor> kept = std::move(tensors_);
    std::vector<at::Tensor> keep;
    std::map<std::string, TensorBytes> bytes;
    for (TensorBytes& tensor : tensor_bytes(TensorMap(kept.begin(), kept.end()), keep))
      bytes.emplace(tensor.name, std::move(tensor));
    write_torch_file(out, tree, bytes);
    if (!config_.codec.as_audiolm_pytorch && purpose != ExportFor::training)
      notes_.push_back(
          "trained with model.codec.as_audiolm_pytorch = false: audiolm-pytorch computes some things "
          "differently (docs/differences.md) and may sound worse with these weights");
    return notes_;
  }

  std::vector<std::string> write_ours(const std::string& out, ExportFor purpose) {
    Checkpoint made;
    for (const auto& item : items())
      if (purpose != ExportFor::inference || item.key.starts_with("codec."))
        made.tensors["model." + item.key] = best(item.key);
    made.meta = checkpoint_.meta;
    made.meta.erase("foreign");
    made.meta["holds"] = purpose == ExportFor::inference ? "inference" : "finetune";
    made.meta["version"] = version();
    save_checkpoint(out, made);
    return notes_;
  }

 private:
  struct Item {
    std::string key;
    at::Tensor like;
  };
  std::vector<Item> items() {
    std::vector<Item> all;
    for (const auto& item : gan_->named_parameters()) all.push_back({item.key(), item.value()});
    for (const auto& item : gan_->named_buffers()) all.push_back({item.key(), item.value()});
    return all;
  }

  // The averaged weight where there is one.
  at::Tensor best(const std::string& ours) {
    for (const std::string prefix : {"ema.average.", "model."}) {
      const auto found = checkpoint_.tensors.find(prefix + ours);
      if (found != checkpoint_.tensors.end()) return found->second;
    }
    fail("[export] {} has no `model.{}`; was it made for inference?", path_, ours);
  }

  Json reference(const std::string& name, const at::Tensor& tensor) {
    tensors_[name] = tensor;
    return {{"$tensor", name}};
  }

  Json weights_tree(bool with_discriminators) {
    Json entries = Json::array();
    const bool imported = checkpoint_.meta.contains("foreign");
    for (const auto& item : items()) {
      const std::string theirs = audiolm_pytorch::soundstream_name(item.key, config_);
      if (!with_discriminators && audiolm_pytorch::belongs_to_discriminators(theirs)) continue;
      entries.push_back({theirs, reference(theirs, audiolm_pytorch::as_theirs(theirs, best(item.key)))});
    }
    for (const auto& [theirs, tensor] : audiolm_pytorch::derived_tensors(config_)) {
      // What was imported is kept to the last bit.
      const auto original = checkpoint_.tensors.find("foreign.model." + theirs);
      entries.push_back(
          {theirs, reference(theirs, original == checkpoint_.tensors.end() ? tensor : original->second)});
    }
    Json config, release = "2.0.7";
    if (imported) {
      const Json& tree = checkpoint_.meta["foreign"]["tree"];
      config = tree.value("config", Json());
      release = tree.value("version", release);
    }
    if (config.is_null())
      config = {{"$bytes", to_hex(json_to_pickle(audiolm_pytorch::soundstream_arguments(config_)))}};
    if (config_.multi_scale.channels != MultiScaleDiscriminatorConfig{}.channels && with_discriminators)
      notes_.push_back("audiolm-pytorch has no setting for these multi-scale discriminators");
    return {{"model", {{"$ordered", entries}}}, {"config", config}, {"version", release}};
  }

  // Every tensor that an imported tree names, in the shape and type that it had there.
  void collect(Json& value) {
    if (!value.is_structured()) return;
    if (value.is_object() && value.contains("$tensor")) {
      const std::string key = value["$tensor"].get<std::string>();
      const auto found = checkpoint_.tensors.find(key);
      require(found != checkpoint_.tensors.end(), "[export] {} lacks `{}`", path_, key);
      const auto shape = value.at("shape").get<std::vector<int64_t>>();
      const std::string type = value.at("type").get<std::string>();
      // The same key may be written in two ways (a codebook has a leading dimension there).
      const std::string name = fmt::format("{}|{}|{}", key, fmt::join(shape, ","), type);
      tensors_[name] = found->second.reshape(shape).to(scalar_type(type));
      value = {{"$tensor", name}};
      return;
    }
    for (auto& item : value) collect(item);
  }

  const Checkpoint& checkpoint_;
  std::string path_;
  SoundStreamGanConfig config_;
  SoundStreamGan gan_{nullptr};
  std::map<std::string, at::Tensor> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> export_checkpoint(const std::string& run_or_checkpoint, const std::string& out,
                                           ExportFor purpose) {
  const at::NoGradGuard no_grad;
  const FoundCheckpoint found = open_checkpoint(run_or_checkpoint, "export");
  const std::string extension = std::filesystem::path(out).extension().string();
  Exporter exporter(found.checkpoint, found.path);
  if (extension == ".pt" || extension == ".pth") return exporter.write_torch(out, purpose);
  require(extension == ".safetensors",
          "[export] expected an output ending in .pt (audiolm-pytorch) or .safetensors (melete), got {}",
          out);
  require(purpose != ExportFor::training,
          "[export] a checkpoint that training goes on from is what {} already is; try copying it",
          found.path);
  return exporter.write_ours(out, purpose);
}

}  // namespace melete
