// MuLaN and MusicLM: sound and words in one space, and music from a sentence.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System musiclm_system();

constexpr const char* kMulanTask = "mulan";

std::unique_ptr<Recipe> make_mulan_recipe();
// MusicLM's stages: AudioLM's, conditioned on the joint embedding.
std::unique_ptr<Recipe> make_music_stage_recipe(const std::string& stage);
std::string music_stage_task(const std::string& stage);  // "semantic": "musiclm-semantic"
std::unique_ptr<Generation> make_musiclm_generation();
std::unique_ptr<JointEmbedding> open_mulan(const FoundCheckpoint& found);
ImportedCheckpoint import_mulan(const PackageSource& source);
std::unique_ptr<Exporter> make_mulan_exporter(const Checkpoint& checkpoint, const std::string& path);
std::unique_ptr<Benchmark> make_mulan_benchmark();

}  // namespace melete
