// What spear-tts-pytorch's packages (speech.speech.N.pt, semantic.text.N.pt, text.semantic.N.pt) tell: no
// settings are in them, so shapes speak.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "systems/spear_tts/foreign_names.h"
#include "train/exporter.h"
#include "train/foreign_package.h"

namespace melete {

ImportedCheckpoint import_spear_tts(const PackageSource& source);
std::unique_ptr<Exporter> make_spear_tts_exporter(const Checkpoint& checkpoint, const std::string& path);

}  // namespace melete

namespace melete::spear_tts {

// The constructor arguments of a TextToSemantic with these weights. What shapes cannot tell comes from
// `given`, else it is upstream's default, and a note says so. Given ones that contradict the weights are an
// Error.
nlohmann::ordered_json arguments_of_file(const TensorMap& state_dict, const nlohmann::ordered_json& given,
                                         std::vector<std::string>& notes);
// The arguments that make the same model there; the inverse of foreign_settings.
nlohmann::ordered_json foreign_arguments(const ForeignSettings& settings);

// One of the three trainers, and how it names its files.
struct ForeignTrainer {
  std::string task, file_begins_with;
  Direction direction;
};
const std::vector<ForeignTrainer>& foreign_trainers();

// Weights do not tell which trainer saved them: the file's name does, else how many parameters its optimiser
// has (0: none), which also tells how many encoder layers stood still.
struct ForeignTraining {
  ForeignTrainer trainer;
  int64_t frozen_encoder_layers = 0;
};
ForeignTraining training_of_file(TextToSemanticImpl& model, const std::string& path,
                                 int64_t optimiser_parameters, std::vector<std::string>& notes);

}  // namespace melete::spear_tts
