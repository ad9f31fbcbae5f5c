// Checkpoints from the Python systems' files, and files for them and others.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/exporter.h"
#include "train/foreign_package.h"

namespace melete {

std::vector<std::string> foreign_sources();  // "audiolm-pytorch", ...

// A trainer's package (soundstream.N.pt, semantic.transformer.N.pt, ...), a saved model, or a bare
// state_dict. `arguments`: constructor arguments that the file does not hold; those that contradict its
// weights are an Error. The result is what `train --resume`, `codec`, `generate` and `export` use.
ImportedCheckpoint import_foreign(const std::string& from, const std::string& path,
                                  const nlohmann::ordered_json& arguments = {});

// `run_or_checkpoint`: a run folder (its newest usable checkpoint) or a file. `out`: x.pt with upstream's
// names, or x.safetensors with weights alone. Returns what a person should know.
std::vector<std::string> export_checkpoint(const std::string& run_or_checkpoint, const std::string& out,
                                           const ExportRequest& request);

}  // namespace melete
