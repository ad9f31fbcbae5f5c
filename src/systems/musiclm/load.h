// From run folders to a joint embedding, and to a MusicLM whose parts fit together.
#pragma once

#include <string>

#include "run/load_weights.h"
#include "systems/musiclm/generate.h"

namespace melete::musiclm {

// Run folders or checkpoint files. Empty embedding, tokenizer and codec: those the stages were trained with,
// where they were then.
struct MusicLmPaths {
  std::string semantic, coarse, fine, embedding, tokenizer, codec;
};

// Looks through a folder of runs and files for what the paths leave empty; two of a kind are an Error that
// names both.
void find_parts(const std::string& folder, MusicLmPaths& paths);

// Refuses parts that were trained with others than those loaded, naming both.
MusicLm load_musiclm(const MusicLmPaths& paths, Weights weights = Weights::best);

}  // namespace melete::musiclm
