#include "device/untrained_runs.h"

#include <fmt/ranges.h>
#include <torch/utils.h>

#include <filesystem>

#include "cli/app.h"
#include "core/base/error.h"
#include "core/base/find_program.h"
#include "io/audio_tensor.h"
#include "nn/mel_frames.h"
#include "pretrained/import.h"
#include "run/checkpoint.h"
#include "untrained_checkpoint.h"

namespace melete::testing {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRateHz = 24000;  // of soundstream's tiny recipe

// The first checkpoint of a run with those settings, before its first step.
void write_run(const std::string& path, const std::string& name, const Json& settings) {
  Checkpoint made = untrained_checkpoint(name, settings);
  for (auto& [key, tensor] : made.tensors)
    if (key.ends_with("query_norm") || key.ends_with("key_norm")) tensor = tensor * kGentle;
  save_checkpoint(path, made);
}

void write_tokenizer(const std::string& path) {
  torch::manual_seed(2);
  MfccConfig mfcc;
  const KmeansTokenizer tokenizer(std::make_unique<MfccFeatures>(mfcc),
                                  Centroids{at::randn({16, Mfcc(mfcc).dim()}) * 5, {}, {}});
  save_frozen(path, frozen(tokenizer));
}

// Two tones that move, so that frames differ.
void write_sound(const std::string& path, double seconds, double pitch) {
  const auto samples = static_cast<int64_t>(seconds * kRateHz);
  const at::Tensor time = at::arange(samples, at::kFloat) / kRateHz;
  const at::Tensor wave =
      at::sin(6.283 * pitch * time * (1 + time)) * 0.3 + at::sin(6.283 * 3 * pitch * time) * 0.2;
  write_wave(path, wave, kRateHz);
}

void run(std::vector<std::string> words) {
  require(run_program(words) == 0, "[test] melete {} failed", fmt::join(words, " "));
}

}  // namespace

const UntrainedRuns& UntrainedRuns::shared() {
  static const UntrainedRuns one;
  return one;
}

UntrainedRuns::UntrainedRuns() : speaks_(!find_program("espeak-ng").empty()) {
  const auto& at = *this;
  write_sound(at / "sound/low.wav", 1.0, 110);
  write_sound(at / "sound/high.wav", 0.7, 330);
  run({"data", "synth", "--kind", "music", "-o", at / "music", "--count", "4", "--seconds", "1"});
  run({"data", "synth", "--kind", "pictures", "-o", at / "shapes", "--count", "4", "--size", "32"});

  write_tokenizer(at / "tokenizer.safetensors");
  const Json semantic = {{"semantic_from", at / "tokenizer.safetensors"}};
  // Of the smallest sounds, too.
  write_run(at / "codec.safetensors", "soundstream", {{"model", {{"codec", {{"pad_mode", "constant"}}}}}});
  const Json both = {{"semantic_from", at / "tokenizer.safetensors"},
                     {"codec_from", at / "codec.safetensors"}};
  write_run(at / "semantic.safetensors", "semantic", semantic);
  write_run(at / "coarse.safetensors", "coarse", both);
  write_run(at / "fine.safetensors", "fine", {{"codec_from", at / "codec.safetensors"}});

  write_run(at / "mulan.safetensors", "mulan", {});
  const auto conditioned = [&](Json settings) {
    settings["condition_from"] = at / "mulan.safetensors";
    return settings;
  };
  write_run(at / "musiclm-semantic.safetensors", "musiclm-semantic", conditioned(semantic));
  write_run(at / "musiclm-coarse.safetensors", "musiclm-coarse", conditioned(both));
  write_run(at / "musiclm-fine.safetensors", "musiclm-fine",
            conditioned({{"codec_from", at / "codec.safetensors"}}));

  write_run(at / "vqgan.safetensors", "vqgan", {});
  write_run(at / "maskgit.safetensors", "maskgit", {{"vqgan_from", at / "vqgan.safetensors"}});

  for (const char* name : {"spear-back-translate", "spear-text-to-semantic"})
    write_run(at / (name + std::string(".safetensors")), name, semantic);

  write_run(at / "voicebox.safetensors", "voicebox",
            {{"features_from", "mel"},
             {"told_by", "semantic"},
             {"semantic_from", at / "tokenizer.safetensors"},
             {"frame_mean", -3.0},
             {"frame_deviation", 2.0}});
  // A vocoder wants the very frames that it was trained on: edges and floor are Voicebox's.
  write_run(at / "vocos.safetensors", "vocos",
            {{"mel", {{"edges", "same"}, {"floor", MelFramesConfig().floor}}}});
  if (!speaks_) return;
  run({"data", "synth", "--kind", "speech", "-o", at / "speech", "--count", "2", "--short_sentences",
       "--timings", at / "timings.jsonl"});
  write_run(at / "aligner.safetensors", "aligner", {{"data_from", at / "speech"}});
  write_run(at / "duration.safetensors", "duration", {{"data_from", at / "timings.jsonl"}});
  write_run(at / "reading.safetensors", "voicebox",
            {{"features_from", "mel"},
             {"told_by", "phonemes"},
             {"timings", at / "timings.jsonl"},
             {"data", {{"segment_seconds", 0}}},
             {"frame_mean", -3.0},
             {"frame_deviation", 2.0}});
}

}  // namespace melete::testing
