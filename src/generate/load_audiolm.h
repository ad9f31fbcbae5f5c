// From run folders to an AudioLM whose parts fit together.
#pragma once

#include <string>
#include <vector>

#include "generate/audiolm.h"
#include "generate/load_weights.h"

namespace melete {

// Run folders or checkpoint files. Empty tokenizer, codec and text encoder: those the stages were trained
// with, where they were then.
struct AudioLmPaths {
  std::string semantic, coarse, fine, tokenizer, codec, text;
};

// Looks through a folder of runs and files for what the paths leave empty; each part is known by what its
// newest checkpoint says of itself. Two of a kind are an Error that names both.
void find_parts(const std::string& folder, AudioLmPaths& paths);

// Refuses parts that were trained with other tokenizers than those loaded, naming both.
AudioLm load_audiolm(const AudioLmPaths& paths, Weights weights = Weights::best);

}  // namespace melete
