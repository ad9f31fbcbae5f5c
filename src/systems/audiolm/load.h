// From run folders to an AudioLM whose parts fit together.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"
#include "run/kept_models.h"
#include "run/load_weights.h"
#include "run/trained_with.h"
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

// The run that a stage comes from.
struct StageRun {
  std::string path;                 // of the checkpoint
  nlohmann::ordered_json settings;  // of the run
};
// A setting of it; empty where it has none of that name.
inline std::string setting_of(const StageRun& run, const char* name) {
  return run.settings.value(name, "");
}
// setting: the identity that the run remembers. One that was imported does not say; sizes are checked all the
// same.
inline void require_trained_with(const StageRun& run, const char* what, const char* setting,
                                 const std::string& now, const char* flag) {
  require_trained_with(run.path, what, setting_of(run, setting), now, flag);
}
// Whether it was trained on runs of one semantic token as one. A stage that was imported does not say.
bool unique_consecutive(const StageRun& run);

template <class Model>
struct LoadedStage : StageRun {
  Model model{nullptr};  // in eval mode
};

// where: opens the messages.
template <class Model, class Config>
LoadedStage<Model> load_stage(const std::string& run_or_checkpoint, const std::string& where,
                              const std::string& task, Weights weights, at::Device device = at::kCPU) {
  using Loaded = LoadedStage<Model>;
  return kept_model<Loaded>(task, run_or_checkpoint, weights_name(weights) + device.str(), [&] {
    const FoundCheckpoint found = open_checkpoint(run_or_checkpoint, where, task);
    Config config;
    Loaded loaded;
    loaded.path = found.path;
    loaded.settings = found.checkpoint.meta.at("config");
    schema_of(config).apply(loaded.settings.at("model"));
    take_pieces(config.stage.text, found.checkpoint.tensors, "model.text_encoder.pieces", found.path);
    loaded.model = Model(config);
    loaded.model->eval();
    load_weights(*loaded.model, "", found, weights, "audiolm");
    loaded.model->to(device);
    return loaded;
  });
}

// Refuses parts that were trained with other tokenizers than those loaded, naming both.
AudioLm load_audiolm(const AudioLmPaths& paths, Weights weights = Weights::best,
                     at::Device device = at::kCPU);

}  // namespace melete
