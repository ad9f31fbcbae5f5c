// From run folders to an AudioLM whose parts fit together.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"
#include "run/load_weights.h"
#include "systems/audiolm/audiolm.h"

namespace melete {

// Run folders or checkpoint files. Empty tokenizer, codec and text encoder: those the stages were trained
// with, where they were then.
struct AudioLmPaths {
  std::string semantic, coarse, fine, tokenizer, codec, text;
};

// Looks through a folder of runs and files for what the paths leave empty; each part is known by what its
// newest checkpoint says of itself. Two of a kind are an Error that names both.
void find_parts(const std::string& folder, AudioLmPaths& paths);

// A stage out of its checkpoint, in eval mode.
template <class Model, class Config>
Model build_stage(const FoundCheckpoint& found, Weights weights, at::Device device = at::kCPU) {
  Config config;
  schema_of(config).apply(found.checkpoint.meta.at("config").at("model"));
  take_pieces(config.stage.text, found.checkpoint.tensors, "model.text_encoder.pieces", found.path);
  Model model(config);
  model->eval();
  load_weights(*model, "", found, weights, "audiolm");
  model->to(device);
  return model;
}

// A setting of the run that a checkpoint comes from; empty where it has none of that name.
inline std::string setting_of(const FoundCheckpoint& found, const char* name) {
  return found.checkpoint.meta.at("config").value(name, "");
}

// Refuses parts that were trained with other tokenizers than those loaded, naming both.
AudioLm load_audiolm(const AudioLmPaths& paths, Weights weights = Weights::best,
                     at::Device device = at::kCPU);

}  // namespace melete
