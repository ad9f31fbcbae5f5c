// How fairseq spells vq-wav2vec.
#pragma once

#include "io/foreign_weights.h"
#include "pretrained/vq_wav2vec.h"

namespace melete::fairseq {

// fairseq's model settings (`cfg.model` or old `args`, may be null) and what the weights themselves say.
VqWav2VecConfig vq_wav2vec_config(const nlohmann::ordered_json& model, const TensorMap& weights,
                                  const std::string& where);
VqWav2Vec load_vq_wav2vec(const VqWav2VecConfig& config, const TensorMap& weights, const std::string& where);

}  // namespace melete::fairseq
