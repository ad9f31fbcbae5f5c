// SoundStream: a neural codec, sound to tokens and back.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System soundstream_system();

std::unique_ptr<Recipe> make_soundstream_recipe();
std::unique_ptr<Exporter> make_soundstream_exporter(const Checkpoint& checkpoint, const std::string& path);
ImportedCheckpoint import_soundstream(const PackageSource& source);
std::unique_ptr<Benchmark> make_soundstream_benchmark();

}  // namespace melete
