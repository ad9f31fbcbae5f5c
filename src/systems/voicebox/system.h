// Voicebox: speech by flow matching, told what to say and in whose voice.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System voicebox_system();

std::unique_ptr<Recipe> make_voicebox_recipe();
std::unique_ptr<Recipe> make_aligner_recipe();
std::unique_ptr<Recipe> make_duration_recipe();
std::unique_ptr<Generation> make_voicebox_generation();
ImportedCheckpoint import_voicebox(const PackageSource& source);
std::unique_ptr<Benchmark> make_voicebox_benchmark();
std::unique_ptr<Exporter> make_voicebox_exporter(const Checkpoint& checkpoint, const std::string& path);

}  // namespace melete
