// How gemelo-ai's vocos package spells Vocos.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "pretrained/vocos.h"

namespace melete::foreign_vocos {

// What the shapes of the weights tell. The hop is a quarter of the transform, as published models have it;
// those on EnCodec's frames have as many hops as frames.
VocosConfig from_weights(const TensorMap& weights, const std::string& where);

// Weights under the package's names; parts that only its training or its feature extractor need are left out.
Vocos load(const VocosConfig& config, const TensorMap& weights, const std::string& where);

// Our name of a weight -> theirs.
std::vector<std::string> names(const std::string& ours, const VocosConfig& config);

}  // namespace melete::foreign_vocos
