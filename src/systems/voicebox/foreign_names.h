// How voicebox-pytorch spells what we build: constructor arguments, and names of weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "systems/voicebox/aligner.h"
#include "systems/voicebox/duration_predictor.h"
#include "systems/voicebox/flow_matching.h"
#include "systems/voicebox/sampling.h"

namespace melete::voicebox_pytorch {

using Json = nlohmann::ordered_json;

// From the arguments of its classes; an unknown one is an Error. latent_dim: values of a frame of its
// audio_enc_dec, 0 where it has none.
voicebox::VoiceboxConfig voicebox_config(const Json& arguments, int64_t latent_dim = 0);
voicebox::TransformerConfig transformer_config(const Json& arguments);
voicebox::DurationConfig duration_config(const Json& arguments, int64_t latent_dim = 0);
// The aligner that a DurationPredictor of these arguments has; it takes embeddings.
voicebox::AlignerConfig duration_aligner_config(const Json& arguments);
voicebox::AlignerConfig aligner_config(const Json& arguments);
// From the arguments of ConditionalFlowMatcherWrapper and of its VoiceBox.
voicebox::FlowMatchingConfig flow_matching_config(const Json& wrapper, const Json& voicebox);
// Its sample(steps, cond_scale): so many points in time, one less of steps.
voicebox::FlowSampling sampling_config(const Json& wrapper, int64_t points, double guidance);

// The arguments of VoiceBox(...) that make the same network; the inverse of voicebox_config. What upstream
// has no argument for (skip connections, an odd depth) is an Error.
Json voicebox_arguments(const voicebox::VoiceboxConfig& config);
// The arguments that the shapes of a VoiceBox's weights tell, all that matter to the network.
Json voicebox_arguments_of_file(const TensorMap& state_dict, const std::string& where);
// Width of a frame of the audio_enc_dec of such weights; 0 where they have none to be seen.
int64_t latent_dim_of_file(const TensorMap& state_dict);

// Our name of a weight of any of the four modules -> theirs, in a state_dict of that module alone.
std::string name(const std::string& ours);

struct NamedPair {
  std::string ours, theirs;
  at::Tensor tensor;  // ours
};
std::vector<NamedPair> pairs(torch::nn::Module& module);

// Copies a state_dict into the module. Missing, superfluous and misshapen tensors are Errors that name them;
// the codec, vocoder and aligner inside, and what follows from settings, are left out.
void load(torch::nn::Module& module, const TensorMap& state_dict, const std::string& where);

// A state_dict as theirs.
TensorMap state_dict(torch::nn::Module& module);

// Names of a ConditionalFlowMatcherWrapper in the order of its parameters, which is that of its optimiser.
void sort_as_theirs(std::vector<std::string>& names);
// Their names of all that its optimiser lists, in its order: the network's parameters, and the null
// condition, which is a parameter there that never moves. prefix: where the network stands.
std::vector<std::string> optimiser_order(torch::nn::Module& module, const std::string& prefix = "");

}  // namespace melete::voicebox_pytorch
