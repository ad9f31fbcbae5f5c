// How audiolm-pytorch spells what we build: constructor arguments, and names of weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/foreign_weights.h"
#include "systems/soundstream/gan.h"

namespace melete::audiolm_pytorch {

constexpr const char* kRelease = "2.0.7";  // that files of ours say they are of

// From the arguments of its SoundStream(...); an unknown one is an Error. multi_scale holds the arguments of
// its MultiScaleDiscriminator(...), which SoundStream itself cannot set. The result has as_audiolm_pytorch
// on.
SoundStreamGanConfig soundstream_config(const nlohmann::ordered_json& arguments,
                                        const nlohmann::ordered_json& multi_scale = {});
QuantizerConfig residual_vq_config(const nlohmann::ordered_json& arguments);
StftDiscriminatorConfig stft_discriminator_config(const nlohmann::ordered_json& arguments);
MultiScaleDiscriminatorConfig multi_scale_config(const nlohmann::ordered_json& arguments);

// Our name of a weight of SoundStreamGan -> theirs in a SoundStream state_dict.
std::string soundstream_name(const std::string& ours, const SoundStreamGanConfig& config);

// Every parameter and buffer of a module whose names stand below `prefix` inside SoundStreamGan ("" for the
// whole).
std::vector<NamedPair> soundstream_pairs(torch::nn::Module& module, const std::string& prefix,
                                         const SoundStreamGanConfig& config);

// What a state_dict lacks until an affine codebook has seen vectors.
bool may_be_missing(const std::string& theirs);
// The flags of affine codebooks, which are no pairs. prefix: as above; their_prefix: what their names lack.
void load_affine_flags(torch::nn::Module& module, const std::string& prefix, const TensorMap& state_dict,
                       const SoundStreamGanConfig& config, const std::string& their_prefix);

// Copies a state_dict into the module. Missing, superfluous and misshapen tensors are Errors that name them.
void load_soundstream(SoundStreamGan& model, const TensorMap& state_dict);
// The same for a state_dict that may lack the discriminators.
void load_codec_weights(SoundStreamGan& model, const TensorMap& state_dict);

}  // namespace melete::audiolm_pytorch
