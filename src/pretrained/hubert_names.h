// How Hugging Face's transformers and fairseq spell HuBERT.
#pragma once

#include "io/foreign_weights.h"
#include "pretrained/hubert.h"

namespace melete::foreign_hubert {

HubertConfig from_config_json(const nlohmann::ordered_json& config_json);  // Hugging Face
// fairseq's `cfg.model` (or old `args`), with `normalize` of its task where given.
HubertConfig from_fairseq(const nlohmann::ordered_json& model, const nlohmann::ordered_json& task = {});
// What can be read off the weights of either spelling: heads are taken to be 64 wide, strides the published
// ones.
HubertConfig from_weights(const TensorMap& weights, const std::string& where);

// Weights of either spelling, weight norm folded or not; heads that pre-training or fine-tuning added are
// left out. layers: the lowest so many, the rest is left out; 0: all.
Hubert load(HubertConfig config, const TensorMap& weights, const std::string& where, int64_t layers = 0);

}  // namespace melete::foreign_hubert
