// From run folders to a joint embedding, and to a MusicLM whose parts fit together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "run/load_weights.h"
#include "systems/musiclm/generate.h"
#include "systems/musiclm/labels.h"
#include "systems/musiclm/mulan_embedding.h"

namespace melete::musiclm {

// A run of mulan as a tool, and what it was trained with.
struct LoadedMulan {
  std::string path;
  int64_t step = 0;
  std::unique_ptr<MulanEmbedding> embedding;
  Templates templates;                // that its texts were put into
  std::string data_from, valid_from;  // valid_from empty: of its data
  double valid_fraction = 0;          // this share was held out by
  uint64_t split_seed = 0;            // this seed
};
LoadedMulan load_mulan(const FoundCheckpoint& found);
LoadedMulan load_mulan(const std::string& run_or_checkpoint, at::Device device = at::kCPU);

// Run folders or checkpoint files. Empty embedding, tokenizer and codec: those the stages were trained with,
// where they were then.
struct MusicLmPaths {
  std::string semantic, coarse, fine, embedding, tokenizer, codec;
};

// Looks through a folder of runs and files for what the paths leave empty; two of a kind are an Error that
// names both.
void find_parts(const std::string& folder, MusicLmPaths& paths);

// Refuses parts that were trained with others than those loaded, naming both.
MusicLm load_musiclm(const MusicLmPaths& paths, Weights weights = Weights::best,
                     at::Device device = at::kCPU);

}  // namespace melete::musiclm
