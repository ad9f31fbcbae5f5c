// A vocoder that was trained here, ready to use.
#pragma once

#include <memory>
#include <string>

#include "nn/mel_frames.h"
#include "roles/audio_features.h"
#include "run/run_folder.h"

namespace melete {

std::unique_ptr<AudioFeatures> load_vocos(const FoundCheckpoint& found);
std::unique_ptr<AudioFeatures> load_encodec_vocos(const FoundCheckpoint& found);  // of `melete import vocos`

// Mel frames and what makes them audible: a run of vocos, which must have been trained on such frames, or,
// where `vocoder` is empty, Griffin-Lim.
std::unique_ptr<AudioFeatures> open_mel_features(const MelFramesConfig& mel, const std::string& vocoder);

}  // namespace melete
