// What audiolm-pytorch's SoundStream files hold besides weights: constructor arguments, the order of
// optimiser states, and tensors that follow from the settings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "systems/soundstream/foreign_names.h"

namespace melete::audiolm_pytorch {

// The settings of a file's model. Arguments may be null (a bare state_dict): then what the shapes of the
// weights tell is taken from them, and the rest is upstream's default. The multi-scale discriminators'
// settings, which no file holds, always come from the weights. Arguments that a person gave go before the
// file's. Those that contradict the weights are an Error.
SoundStreamGanConfig soundstream_config_of_file(nlohmann::ordered_json arguments, const TensorMap& state_dict,
                                                const nlohmann::ordered_json& given,
                                                std::vector<std::string>& notes);

// `seen`: what the shapes of the weights tell. An Error names both values: "<who_says> dim = 8, the weights
// say 16".
void check_against_weights(const nlohmann::ordered_json& arguments, const nlohmann::ordered_json& seen,
                           const std::string& who_says);

// The arguments of SoundStream(...) that make the same model; the inverse of soundstream_config.
nlohmann::ordered_json soundstream_arguments(const SoundStreamGanConfig& config);

// Entries of their state_dict that we do not keep because they follow from the settings: mel filters,
// windows, rotary frequencies.
TensorMap derived_tensors(const SoundStreamGanConfig& config);

// How a tensor of ours is shaped there: codebooks have a leading dimension of one.
at::Tensor as_theirs(const std::string& theirs, const at::Tensor& ours);

// Names of the generator's parameters in the order of their optimiser's state, given all its parameters'
// names in the order of the state_dict.
std::vector<std::string> generator_order(const std::vector<std::string>& names);

// Names of their state_dict as PyTorch lists them.
void sort_as_theirs_codec(std::vector<std::string>& names);

bool belongs_to_discriminators(const std::string& theirs);

}  // namespace melete::audiolm_pytorch
