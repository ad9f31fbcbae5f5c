// From a run folder or a checkpoint file to a codec that is ready to use: the file alone is enough.
#pragma once

#include <string>

#include "run/load_weights.h"
#include "systems/soundstream/soundstream.h"

namespace melete {

struct LoadedCodec {
  SoundStream model{nullptr};  // in eval mode
  std::string path;            // of the checkpoint
  int64_t step = 0;
  bool averaged = false;
};

// In a run folder the newest usable checkpoint is taken.
LoadedCodec load_codec(const std::string& run_or_checkpoint, Weights weights = Weights::best);
LoadedCodec load_codec(const FoundCheckpoint& found, Weights weights = Weights::best);

}  // namespace melete
