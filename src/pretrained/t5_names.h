// How Hugging Face's transformers spells T5's encoder.
#pragma once

#include "io/foreign_weights.h"
#include "pretrained/t5.h"

namespace melete::huggingface {

T5Config t5_config(const nlohmann::ordered_json& config_json);
// What can be read off the weights themselves; heads are 64 wide.
T5Config t5_config(const TensorMap& weights, const std::string& where);
// The decoder is left out. `where` goes into messages.
T5Encoder load_t5(const T5Config& config, const TensorMap& weights, const std::string& where);

}  // namespace melete::huggingface
