// How audiolm-pytorch spells AudioLM's three transformers: constructor arguments, and names of weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "systems/audiolm/coarse_transformer.h"
#include "systems/audiolm/fine_transformer.h"
#include "systems/audiolm/semantic_transformer.h"
#include "systems/soundstream/foreign_names.h"

namespace melete::audiolm_pytorch {

// From the arguments of its SemanticTransformer(...), CoarseTransformer(...), FineTransformer(...); an
// unknown one is an Error. text_dim is what an absent `cond_dim` stands for: the width of its T5.
SemanticConfig semantic_config(const nlohmann::ordered_json& arguments, int64_t text_dim = 768);
CoarseConfig coarse_config(const nlohmann::ordered_json& arguments, int64_t text_dim = 768);
FineConfig fine_config(const nlohmann::ordered_json& arguments, int64_t text_dim = 768);

// Our name of a weight of any of the three -> theirs.
std::string stage_name(const std::string& ours);

// Every parameter that upstream has, too, in the order of our module.
std::vector<NamedPair> stage_pairs(torch::nn::Module& stage);

// Copies a state_dict into the module. Missing, superfluous and misshapen tensors are Errors that name them.
void load_stage(torch::nn::Module& stage, const TensorMap& state_dict);

// The zeros that their norms keep: in a state_dict, but no parameter.
bool is_norm_shift(const std::string& theirs);

// A state_dict as theirs, with the zeros that they keep in their norms.
TensorMap stage_state_dict(torch::nn::Module& stage);

}  // namespace melete::audiolm_pytorch
