// How Meta's encodec package and Hugging Face's transformers spell EnCodec.
#pragma once

#include "io/foreign_weights.h"
#include "pretrained/encodec.h"

namespace melete::foreign_encodec {

// Arguments of encodec's SEANetEncoder, ResidualVectorQuantizer and EncodecModel in one object; `bandwidth`
// (kbit/s) decides how many quantizers are used.
EncodecConfig from_arguments(const nlohmann::ordered_json& arguments);
EncodecConfig from_config_json(const nlohmann::ordered_json& config_json);  // Hugging Face
// What can be read off the weights; a model of one channel is the causal 24 kHz one.
EncodecConfig from_weights(const TensorMap& weights, const std::string& where);

// Weights of either spelling, weight norm folded or not.
Encodec load(const EncodecConfig& config, const TensorMap& weights, const std::string& where);

}  // namespace melete::foreign_encodec
