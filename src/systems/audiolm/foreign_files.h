// What audiolm-pytorch's files of its three transformers tell: no settings are in them, so shapes speak; and
// the order of what its modules and optimisers hold.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "systems/audiolm/foreign_names.h"

namespace melete::audiolm_pytorch {

// The constructor arguments of a "semantic", "coarse" or "fine" transformer with these weights. What shapes
// cannot tell comes from `given` (constructor arguments by name), else it is upstream's default, and a note
// says so. Given arguments that contradict the weights are an Error.
nlohmann::ordered_json stage_arguments_of_file(const std::string& kind, const TensorMap& state_dict,
                                               const nlohmann::ordered_json& given,
                                               std::vector<std::string>& notes);

// The arguments that make the same transformer there; the inverse of semantic_config and its like.
nlohmann::ordered_json stage_arguments(const SemanticConfig& config);
nlohmann::ordered_json stage_arguments(const CoarseConfig& config);
nlohmann::ordered_json stage_arguments(const FineConfig& config);

// Names of a state_dict in the order that upstream's modules have them, which is that of its optimisers.
void sort_as_theirs(std::vector<std::string>& names);

}  // namespace melete::audiolm_pytorch
