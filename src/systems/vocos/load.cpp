#include "systems/vocos/load.h"

#include "core/base/error.h"
#include "pretrained/vocos_features.h"
#include "run/load_weights.h"
#include "systems/vocos/griffin_lim.h"
#include "systems/vocos/task.h"

namespace melete {

namespace {

MelFramesConfig mel_of(const FoundCheckpoint& found) {
  MelFramesConfig mel;
  schema_of(mel).apply(found.checkpoint.meta.at("config").at("mel"));
  return mel;
}

Vocos vocoder_of(const FoundCheckpoint& found) {
  VocosConfig config;
  schema_of(config).apply(found.checkpoint.meta.at("config").at("model"));
  Vocos vocoder(config);
  vocoder->eval();
  load_weights(*vocoder, "vocoder.", found, Weights::best, "vocos");
  return vocoder;
}

}  // namespace

std::unique_ptr<AudioFeatures> load_vocos(const FoundCheckpoint& found) {
  return std::make_unique<MelVocos>(mel_of(found), vocoder_of(found));
}

std::unique_ptr<AudioFeatures> load_encodec_vocos(const FoundCheckpoint& found) {
  const auto& settings = found.checkpoint.meta.at("config");
  EncodecConfig config;
  schema_of(config).apply(settings.at("encodec"));
  Encodec codec(config);
  codec->eval();
  load_weights(*codec, "encodec.", found, Weights::best, "encodec");
  return std::make_unique<EncodecVocos>(codec, vocoder_of(found), settings.at("bandwidth").get<int64_t>());
}

std::unique_ptr<AudioFeatures> open_mel_features(const MelFramesConfig& given, const std::string& vocoder) {
  if (vocoder.empty()) return std::make_unique<MelGriffinLim>(given);
  const FoundCheckpoint found = open_checkpoint(vocoder, "vocoder", "vocos");
  MelFramesConfig wanted = given, trained = mel_of(found);
  const auto expected = schema_of(wanted).json(), has = schema_of(trained).json();
  require(expected == has, "[vocoder] {} was trained on other mel frames: expected {}, got {}", found.path,
          expected.dump(), has.dump());
  return load_vocos(found);
}

}  // namespace melete
