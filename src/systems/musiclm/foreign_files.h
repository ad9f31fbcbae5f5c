// What musiclm-pytorch's mulan.N.pt tells about its model: no settings are in it, so shapes speak.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "systems/musiclm/mulan.h"

namespace melete::musiclm_pytorch {

// Arguments of AudioSpectrogramTransformer(...), TextTransformer(...) and MuLaN(...).
struct MulanArguments {
  nlohmann::ordered_json audio, text, mulan;
};

// Of a MuLaN with these weights. What shapes cannot tell comes from `given` (audio.spec_n_fft, text.pad_id,
// decoupled_contrastive_learning), else it is upstream's default, and a note says so. Given arguments that
// contradict the weights are an Error.
MulanArguments arguments_of_file(const TensorMap& state_dict, const nlohmann::ordered_json& given,
                                 std::vector<std::string>& notes);

// The arguments that make the same model there; the inverse of mulan_config.
MulanArguments arguments_of(const musiclm::MulanConfig& config);

}  // namespace melete::musiclm_pytorch
