// Models of this room that were trained here, ready to use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/base/timings.h"
#include "nn/mel_frames.h"
#include "roles/audio_features.h"
#include "run/load_weights.h"
#include "systems/voicebox/aligner.h"
#include "systems/voicebox/duration_predictor.h"
#include "systems/voicebox/task.h"

namespace melete::voicebox {

constexpr const char* kMelFrames = "mel";  // features_from: mel frames by settings, any vocoder of theirs
MelFramesConfig speech_mel();              // 80 bands of 16 kHz, 62.5 frames a second

// features_from as a run has it; `vocoder`: a run of vocos that makes mel frames audible, else Griffin-Lim.
std::shared_ptr<const AudioFeatures> open_features(const std::string& features_from,
                                                   const MelFramesConfig& mel,
                                                   const std::string& vocoder = "",
                                                   at::Device device = at::kCPU);

struct LoadedVoicebox {
  Voicebox model{nullptr};
  FrameScale scale;
  std::shared_ptr<const AudioFeatures> features;
  std::string features_identity;  // of the frames that it was trained on, whatever makes them audible
  std::string told_by;            // "phonemes", "semantic", "none"
  std::string semantic_from;      // the tokenizer, where it is told by semantic tokens
  PhonemizerConfig phonemizer;
  PhonemeTable phonemes;
};
// features_from: for a model that does not say what its frames are, as one that was imported.
LoadedVoicebox load_voicebox(const std::string& run_or_checkpoint, Weights weights,
                             const std::string& vocoder = "", at::Device device = at::kCPU,
                             const std::string& features_from = "");

// When phonemes are said.
class SpeechAligner {
 public:
  explicit SpeechAligner(const std::string& run_or_checkpoint, at::Device device = at::kCPU);

  int64_t rate_hz() const { return mel_.config().rate_hz; }
  double frame_seconds() const {
    return static_cast<double>(mel_.config().hop) / static_cast<double>(mel_.config().rate_hz);
  }
  const PhonemizerConfig& phonemizer() const { return phonemizer_; }
  // wave [samples] at that rate. An Error where there are more phonemes than frames.
  std::vector<double> ends_seconds(const at::Tensor& wave, const Phonemes& phonemes);

 private:
  SpeechAligner(const FoundCheckpoint& found, at::Device device);

  PhonemizerConfig phonemizer_;
  PhonemeTable table_;
  MelFrames mel_;
  Aligner model_{nullptr};
};

// How long phonemes last.
class SpeechDurations {
 public:
  explicit SpeechDurations(const std::string& run_or_checkpoint, at::Device device = at::kCPU);

  // Durations in seconds, one a phoneme; where `known` has one that is not negative, it stays.
  std::vector<double> seconds(const Phonemes& phonemes, const std::vector<double>& known);

 private:
  SpeechDurations(const FoundCheckpoint& found, at::Device device);

  double frames_per_second_ = 0;
  PhonemeTable table_;
  DurationPredictor model_{nullptr};
};

}  // namespace melete::voicebox
