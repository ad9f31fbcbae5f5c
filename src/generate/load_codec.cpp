#include "generate/load_codec.h"

#include <torch/utils.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/random.h"
#include "models/soundstream_gan.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"

namespace melete {

namespace {

FoundCheckpoint find_checkpoint(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path, load_checkpoint(path)};
  auto found = latest_usable(path, [](const std::string&) {});
  require(found.has_value(), "[codec] {} has no usable checkpoint; give a run folder or a .safetensors file",
          path);
  return std::move(*found);
}

// The part of a run's configuration that the model is built from. Settings a newer version dropped are named.
SoundStreamConfig codec_config(const nlohmann::ordered_json& whole) {
  SoundStreamGanConfig config;
  schema_of(config).apply(whole.at("model"));
  return config.codec;
}

}  // namespace

LoadedCodec load_codec(const std::string& run_or_checkpoint, Weights weights) {
  const FoundCheckpoint found = find_checkpoint(run_or_checkpoint);
  const auto& meta = found.checkpoint.meta;
  const std::string task = meta.value("task", "");
  require(task == "soundstream", "[codec] {} is a checkpoint of `{}`, not of a codec", found.path, task);

  LoadedCodec loaded;
  loaded.path = found.path;
  loaded.step = meta.value("step", int64_t{0});
  if (weights == Weights::untrained) {
    const auto seed = meta.at("config").at("train").value("seed", uint64_t{0});
    torch::manual_seed(random_key(seed, "weights"));
    loaded.step = 0;
  }
  loaded.model = SoundStream(codec_config(meta.at("config")));
  loaded.model->eval();
  if (weights == Weights::untrained) return loaded;

  const at::NoGradGuard no_grad;
  const TensorMap& tensors = found.checkpoint.tensors;
  const auto load = [&](const std::string& name, at::Tensor tensor) {
    const auto average = tensors.find("ema.average.codec." + name);
    const auto online = tensors.find("model.codec." + name);
    const bool take_average = weights == Weights::best && average != tensors.end();
    require(take_average || online != tensors.end(), "[codec] {} lacks model.codec.{}", found.path, name);
    const at::Tensor& stored = take_average ? average->second : online->second;
    require(stored.sizes() == tensor.sizes(),
            "[codec] {} of {} has another shape than its configuration says", name, found.path);
    tensor.copy_(stored);
    loaded.averaged |= take_average;
  };
  for (const auto& item : loaded.model->named_parameters()) load(item.key(), item.value());
  for (const auto& item : loaded.model->named_buffers()) load(item.key(), item.value());
  return loaded;
}

}  // namespace melete
