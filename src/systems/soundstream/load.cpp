#include "systems/soundstream/load.h"

#include <torch/utils.h>

#include "core/base/random.h"
#include "systems/soundstream/gan.h"

namespace melete {

namespace {

// The part of a run's configuration that the model is built from. Settings a newer version dropped are named.
SoundStreamConfig codec_config(const nlohmann::ordered_json& whole) {
  SoundStreamGanConfig config;
  schema_of(config).apply(whole.at("model"));
  return config.codec;
}

}  // namespace

LoadedCodec load_codec(const std::string& run_or_checkpoint, Weights weights) {
  return load_codec(open_checkpoint(run_or_checkpoint, "codec", "soundstream"), weights);
}

LoadedCodec load_codec(const FoundCheckpoint& found, Weights weights) {
  const auto& meta = found.checkpoint.meta;

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

  loaded.averaged = load_weights(*loaded.model, "codec.", found, weights, "codec");
  return loaded;
}

}  // namespace melete
