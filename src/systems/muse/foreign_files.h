// What muse-maskgit-pytorch's files do not say in so many words: its trainer saves weights without the
// arguments that they were made with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"

namespace melete::muse_maskgit_pytorch {

// Under this name a file of ours says whose the states of its optimisers are; no file of theirs does.
inline constexpr const char* kOptimiserOrder = "optimizer_parameter_order";
// And under this one the moving average, which their trainer writes as a file of its own.
inline constexpr const char* kAverage = "ema_model";

// Arguments of VQGanVAE(...) by the shapes of its weights. Group normalisations' groups and the choice of a
// loss leave no trace; they are upstream's defaults.
nlohmann::ordered_json vqgan_arguments(const TensorMap& state_dict);
// Of MaskGitTransformer(...) or TokenCritic(...). Whether it conditions on itself leaves no trace.
nlohmann::ordered_json transformer_arguments(const TensorMap& state_dict, bool critic);

// What a person says besides. One that contradicts the weights is an Error that names both values.
nlohmann::ordered_json with_given(nlohmann::ordered_json seen, const nlohmann::ordered_json& given,
                                  const std::string& where);

}  // namespace melete::muse_maskgit_pytorch
