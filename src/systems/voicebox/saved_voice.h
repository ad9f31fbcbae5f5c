// A voice kept under a name (`melete voice save`): what was heard of it, so that it can speak again without
// its recording and without the aligner.
#pragma once

#include <string>
#include <vector>

#include "systems/voicebox/generation_speech.h"

namespace melete::voicebox {

struct SavedVoice {
  std::string name;
  std::string text;               // what it says in the recording
  std::string features_identity;  // whose frames these are
  at::Tensor frames;              // [1, frames, dim], as the features have them: not scaled
  Phonemes phonemes;
  std::vector<double> seconds;  // of each phoneme
};

// What `loaded` would know of a recording of the voice, but for its name.
SavedVoice heard_voice(const LoadedVoicebox& loaded, SpeechAligner& aligner, const std::string& recording,
                       const std::string& text, double longest_seconds);
// The same for a model to go on from. An Error where it was saved for other frames.
KnownSpeech known_voice(const SavedVoice& voice, const LoadedVoicebox& loaded);

// Where voices are kept: MELETE_VOICES, else melete/voices in the user's data folder.
std::string voices_folder();
// folder/NAME.safetensors; an Error where the name would be a path.
std::string voice_path(const std::string& folder, const std::string& name);
std::vector<std::string> voice_names(const std::string& folder);  // sorted

void save_voice(const std::string& path, const SavedVoice& voice);
SavedVoice load_voice(const std::string& path);

}  // namespace melete::voicebox
