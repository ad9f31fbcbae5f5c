#include "systems/voicebox/load.h"

#include <algorithm>

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/frozen.h"
#include "roles/open.h"
#include "run/kept_models.h"
#include "systems/vocos/load.h"
#include "systems/voicebox/phoneme_frames.h"

namespace melete::voicebox {

namespace {

constexpr double kShortestSeconds = 0.01;  // of a phoneme that a predictor gives

template <class Config>
Config settings_of(const FoundCheckpoint& found, const char* section) {
  Config config;
  schema_of(config).apply(found.checkpoint.meta.at("config").at(section));
  return config;
}

std::string word_of(const FoundCheckpoint& found, const char* setting) {
  return found.checkpoint.meta.at("config").value(setting, "");
}

PhonemizerConfig phonemizer_of(const FoundCheckpoint& found) {
  auto config = settings_of<PhonemizerConfig>(found, "phonemizer");
  take_lexicon(config, found.checkpoint.tensors);
  return config;
}

}  // namespace

MelFramesConfig speech_mel() {
  MelFramesConfig mel;
  mel.rate_hz = 16000;
  mel.mels = 80;
  mel.edges = "same";
  return mel;
}

std::shared_ptr<const AudioFeatures> open_features(const std::string& features_from,
                                                   const MelFramesConfig& mel, const std::string& vocoder,
                                                   at::Device device) {
  if (features_from == kMelFrames) {
    MelFramesConfig named = mel;
    return kept_model<std::shared_ptr<const AudioFeatures>>(
        "vocoder", vocoder, schema_of(named).json().dump() + device.str(),
        [&] { return put_on(device, open_mel_features(mel, vocoder)); });
  }
  require(vocoder.empty(), "[vocoder] the frames of {} become sound by themselves; leave it out",
          features_from);
  return open_audio_features(features_from, device);
}

namespace {

// All of it but what makes its frames audible, which is a model of its own.
struct VoiceboxFile {
  LoadedVoicebox loaded;
  std::string features_from;
  MelFramesConfig mel;
};

VoiceboxFile read_voicebox(const std::string& path, Weights weights, at::Device device) {
  const FoundCheckpoint found = open_checkpoint(path, "voicebox", "voicebox");
  const auto& settings = found.checkpoint.meta.at("config");
  VoiceboxFile file;
  LoadedVoicebox& loaded = file.loaded;
  loaded.model = Voicebox(settings_of<VoiceboxConfig>(found, "model"));
  loaded.model->eval();
  load_weights(*loaded.model, "", found, weights, "voicebox");
  loaded.model->to(device);
  loaded.scale = {settings.at("frame_mean"), settings.at("frame_deviation")};
  loaded.features_identity = word_of(found, "features_identity");
  loaded.told_by = word_of(found, "told_by");
  loaded.semantic_from = word_of(found, "semantic_from");
  if (settings.contains("phonemizer")) loaded.phonemizer = phonemizer_of(found);
  loaded.phonemes = PhonemeTable(word_of(found, "phonemes"));
  file.mel = settings.contains("mel") ? settings_of<MelFramesConfig>(found, "mel") : speech_mel();
  file.features_from = word_of(found, "features_from");
  return file;
}

}  // namespace

LoadedVoicebox load_voicebox(const std::string& path, Weights weights, const std::string& vocoder,
                             at::Device device, const std::string& given_features) {
  auto [loaded, features_from, mel] =
      kept_model<VoiceboxFile>("voicebox", path, weights_name(weights) + device.str(),
                               [&] { return read_voicebox(path, weights, device); });
  require(given_features.empty() || features_from.empty(),
          "[features_from] {} makes frames of {} and of nothing else; leave it out", path, features_from);
  if (features_from.empty()) features_from = given_features;
  require(!features_from.empty(),
          "[features_from] {} does not say what its frames are (an imported file never does); name it: mel, "
          "or a run or file of vocos, or a run of a codec",
          path);
  loaded.features = open_features(features_from, mel, vocoder, device);
  require(loaded.features->dim() == loaded.model->config().frame_dim,
          "[features_from] {} has frames of {} values, {} makes such of {}", features_from,
          loaded.features->dim(), path, loaded.model->config().frame_dim);
  return loaded;
}

SpeechAligner::SpeechAligner(const std::string& path, at::Device device)
    : SpeechAligner(kept_model<SpeechAligner>("aligner", path, device.str(), [&] {
        return SpeechAligner(open_checkpoint(path, "aligner", "aligner"), device);
      })) {}

SpeechAligner::SpeechAligner(const FoundCheckpoint& found, at::Device device)
    : phonemizer_(phonemizer_of(found)),
      table_(word_of(found, "phonemes")),
      mel_(settings_of<MelFramesConfig>(found, "mel")),
      model_(settings_of<AlignerConfig>(found, "model")) {
  model_->eval();
  load_weights(*model_, "", found, Weights::best, "aligner");
  model_->to(device);
}

std::vector<double> SpeechAligner::ends_seconds(const at::Tensor& wave, const Phonemes& phonemes) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(*model_);
  const AlignerFrames heard =
      aligner_frames(mel_, wave.unsqueeze(0).to(device), at::full({1}, wave.size(0), at::kLong));
  const auto ids = table_.ids(phonemes);
  const auto frames = heard.lengths[0].item<int64_t>(), count = static_cast<int64_t>(ids.size());
  require(count <= frames, "[aligner] {} phonemes do not fit in {} frames: is the text what is said?", count,
          frames);
  AlignerInput input;
  input.frames = heard.frames;
  input.frame_lengths = heard.lengths;
  input.phonemes = at::tensor(ids, at::kLong).unsqueeze(0).to(device);
  input.phoneme_lengths = at::full({1}, count, at::kLong);
  const at::Tensor ends = model_->forward(input).durations[0].to(at::kCPU).cumsum(0) + heard.begins;
  // A frame stands for its hop where edges are "same", else it is centred on the hop's beginning.
  const double shift = mel_.config().edges == "same" ? 0 : 0.5;
  std::vector<double> result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back(std::max(0.0, static_cast<double>(ends[i].item<int64_t>()) - shift) * frame_seconds());
  result.back() = static_cast<double>(wave.size(0)) / static_cast<double>(rate_hz());
  return result;
}

SpeechDurations::SpeechDurations(const std::string& path, at::Device device)
    : SpeechDurations(kept_model<SpeechDurations>("duration", path, device.str(), [&] {
        return SpeechDurations(open_checkpoint(path, "duration", "duration"), device);
      })) {}

SpeechDurations::SpeechDurations(const FoundCheckpoint& found, at::Device device) {
  frames_per_second_ = found.checkpoint.meta.at("config").at("frames_per_second");
  table_ = PhonemeTable(word_of(found, "phonemes"));
  model_ = DurationPredictor(settings_of<DurationConfig>(found, "model"));
  model_->eval();
  load_weights(*model_, "", found, Weights::best, "duration");
  model_->to(device);
}

std::vector<double> SpeechDurations::seconds(const Phonemes& phonemes, const std::vector<double>& known) {
  require(phonemes.size() == known.size(), "[duration] {} phonemes with {} durations", phonemes.size(),
          known.size());
  const at::NoGradGuard no_grad;
  DurationInput input;
  const at::Device device = device_of(*model_);
  input.phonemes = at::tensor(table_.ids(phonemes), at::kLong).unsqueeze(0).to(device);
  const at::Tensor given = at::tensor(known, at::kDouble).unsqueeze(0);
  input.hidden = (given < 0).to(device);
  input.condition = (given.clamp_min(0) * frames_per_second_).to(at::kFloat).unsqueeze(2).to(device);
  const at::Tensor guessed = model_->forward(input)[0].to(at::kCPU);
  std::vector<double> result = known;
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i] < 0)
      result[i] =
          std::max(kShortestSeconds, guessed[static_cast<int64_t>(i)].item<double>() / frames_per_second_);
  return result;
}

}  // namespace melete::voicebox
