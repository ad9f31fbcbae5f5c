// AudioLM: semantic, coarse and fine transformers over tokens; sound from nothing, from a prompt or from
// text.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System audiolm_system();

std::unique_ptr<Recipe> make_semantic_recipe();
std::unique_ptr<Recipe> make_coarse_recipe();
std::unique_ptr<Recipe> make_fine_recipe();
// A checkpoint of the task "semantic", "coarse" or "fine".
std::unique_ptr<Exporter> make_stage_exporter(const Checkpoint& checkpoint, const std::string& path);
ImportedCheckpoint import_stage(const PackageSource& source, const std::string& kind);
std::unique_ptr<Generation> make_audiolm_generation();
std::unique_ptr<Generation> make_stage_generation(const std::string& stage);
// "semantic", "coarse", "fine": a training step; "generate": all three making tokens
std::unique_ptr<Benchmark> make_stage_benchmark(const std::string& what);

}  // namespace melete
