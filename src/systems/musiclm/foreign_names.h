// How musiclm-pytorch spells what we build: constructor arguments, and names of weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/foreign_weights.h"
#include "io/tensors.h"
#include "systems/musiclm/embed_quantizer.h"
#include "systems/musiclm/mulan.h"

namespace melete::musiclm_pytorch {

// From the arguments of its AudioSpectrogramTransformer(...), TextTransformer(...), MuLaN(...) and
// MuLaNEmbedQuantizer(...); an unknown one is an Error. What is a bug there is switched on here.
musiclm::AudioTowerConfig audio_config(const nlohmann::ordered_json& arguments);
musiclm::TextTowerConfig text_config(const nlohmann::ordered_json& arguments);
musiclm::MulanConfig mulan_config(const nlohmann::ordered_json& audio, const nlohmann::ordered_json& text,
                                  const nlohmann::ordered_json& mulan);
musiclm::EmbedQuantizerConfig quantizer_config(const nlohmann::ordered_json& arguments, int64_t dim);
// Of its SoftmaxContrastiveLearning(...) and SigmoidContrastiveLearning(...); `layers` is left to the caller.
ContrastConfig softmax_config(const nlohmann::ordered_json& arguments);
ContrastConfig sigmoid_config(const nlohmann::ordered_json& arguments);

// A part of MuLaN or of the quantizer, by where it stands in both: {"audio.", "audio."} for the tower alone,
// {"", "mulan."} for a MuLaN inside something.
struct Place {
  std::string ours, theirs;
};

// Every parameter and buffer that both have, in the order of our module.
std::vector<NamedPair> pairs(const torch::nn::Module& module, const Place& place = {});

// What a state_dict holds besides, which follows from the settings: `theirs` ends in it.
bool is_derived(const std::string& theirs);
TensorMap derived_tensors(const musiclm::MulanConfig& config);

// Copies a state_dict into the module. Missing, superfluous and misshapen tensors are Errors that name them.
// others: names that belong elsewhere begin with one of these.
void load(torch::nn::Module& module, const TensorMap& state_dict, const Place& place = {},
          const std::vector<std::string>& others = {});
// A state_dict as theirs.
TensorMap state_dict(const musiclm::Mulan& model);

// Their names in the order in which their module lists its parameters, which optimisers count by.
void sort_as_theirs(std::vector<std::string>& names);

}  // namespace melete::musiclm_pytorch
