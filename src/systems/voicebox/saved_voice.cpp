#include "systems/voicebox/saved_voice.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/base/error.h"
#include "run/frozen_file.h"

namespace melete::voicebox {

namespace {

namespace fs = std::filesystem;

constexpr const char* kVoiceTask = "voice";
constexpr const char* kVoiceEnding = ".safetensors";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

SavedVoice heard_voice(const LoadedVoicebox& loaded, SpeechAligner& aligner, const std::string& recording,
                       const std::string& text, double longest_seconds) {
  require(loaded.told_by == "phonemes",
          "[voice] expected a model that is told by phonemes, got one told by {}", loaded.told_by);
  KnownSpeech speech = hear(loaded, aligner, recording, text, longest_seconds);
  SavedVoice voice;
  voice.text = text;
  voice.features_identity = loaded.features_identity;
  voice.frames = loaded.scale.undo(speech.frames);
  voice.phonemes = std::move(speech.phonemes);
  voice.seconds = std::move(speech.seconds);
  return voice;
}

KnownSpeech known_voice(const SavedVoice& voice, const LoadedVoicebox& loaded) {
  require(
      voice.features_identity == loaded.features_identity,
      "[voice] {} was saved for frames {}, this model has frames {}; save it again with `melete voice save "
      "--from` this run",
      voice.name, voice.features_identity, loaded.features_identity);
  return {loaded.scale.apply(voice.frames), voice.phonemes, voice.seconds};
}

std::string voices_folder() {
  if (const std::string given = environment("MELETE_VOICES"); !given.empty()) return given;
  std::string data = environment("XDG_DATA_HOME");
  if (data.empty()) {
    const std::string home = environment("HOME");
    require(!home.empty(), "[voice] neither MELETE_VOICES nor HOME says where voices are kept");
    data = (fs::path(home) / ".local" / "share").string();
  }
  return (fs::path(data) / "melete" / "voices").string();
}

std::string voice_path(const std::string& folder, const std::string& name) {
  const bool plain = !name.empty() && name.front() != '.' && name.find_first_of("/\\") == std::string::npos;
  require(plain, "[voice] expected a plain name like `anna`, got `{}`", name);
  return (fs::path(folder) / (name + kVoiceEnding)).string();
}

std::vector<std::string> voice_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kVoiceEnding) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

void save_voice(const std::string& path, const SavedVoice& voice) {
  require(voice.phonemes.size() == voice.seconds.size() && voice.frames.dim() == 3,
          "[voice] expected as many durations as phonemes, got {} and {}", voice.seconds.size(),
          voice.phonemes.size());
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  require(!error, "[voice] cannot create {}: {}", fs::path(path).parent_path().string(), error.message());
  FrozenModel stored;
  stored.task = kVoiceTask;
  stored.config = {{"name", voice.name},
                   {"text", voice.text},
                   {"features_identity", voice.features_identity},
                   {"phonemes", joined(voice.phonemes)},
                   {"seconds", voice.seconds}};
  stored.tensors["frames"] = voice.frames.to(at::kCPU).contiguous();
  save_frozen(path, stored);
}

SavedVoice load_voice(const std::string& path) {
  const FrozenModel stored = load_frozen(path);
  require(stored.task == kVoiceTask, "[voice] {} holds `{}`, not a voice; `melete voice save` makes one",
          path, stored.task);
  SavedVoice voice;
  try {
    voice.name = stored.config.at("name");
    voice.text = stored.config.at("text");
    voice.features_identity = stored.config.at("features_identity");
    voice.phonemes = separated(stored.config.at("phonemes").get<std::string>());
    voice.seconds = stored.config.at("seconds").get<std::vector<double>>();
  } catch (const nlohmann::json::exception& problem) {
    fail("[voice] {} is damaged: {}", path, problem.what());
  }
  const auto frames = stored.tensors.find("frames");
  require(frames != stored.tensors.end() && frames->second.dim() == 3 && frames->second.size(0) == 1 &&
              frames->second.scalar_type() == at::kFloat && voice.phonemes.size() == voice.seconds.size(),
          "[voice] {} is damaged: its frames or durations do not fit", path);
  voice.frames = frames->second;
  return voice;
}

}  // namespace melete::voicebox
