// How muse-maskgit-pytorch spells what we build: constructor arguments, and names of weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "systems/muse/maskgit.h"
#include "systems/muse/vqgan.h"

namespace melete::muse_maskgit_pytorch {

// From the arguments of its VQGanVAE(...), Discriminator(...), MaskGitTransformer(...), TokenCritic(...) and
// MaskGit(...); an unknown one is an Error. What comes out behaves as upstream does.
muse::VqganConfig vqgan_config(const nlohmann::ordered_json& arguments);
QuantizerConfig lfq_config(const nlohmann::ordered_json& arguments);
muse::PictureDiscriminatorConfig discriminator_config(const nlohmann::ordered_json& arguments);
muse::MaskGitTransformerConfig transformer_config(const nlohmann::ordered_json& arguments, int64_t text_dim);
muse::MaskGitTransformerConfig critic_config(const nlohmann::ordered_json& arguments, int64_t text_dim);
// critic: arguments of a TokenCritic, or null.
muse::MaskGitConfig maskgit_config(const nlohmann::ordered_json& arguments,
                                   const nlohmann::ordered_json& transformer,
                                   const nlohmann::ordered_json& critic, int64_t text_dim);

// The width of the text that a transformer reads. `prefix`: where it stands in the state_dict
// ("transformer.").
int64_t text_dim(const TensorMap& state_dict, const std::string& prefix);

struct NamedPair {
  enum class Form {
    same,
    gate_first,  // the rows of the gate come before those of the value
    inverted,    // theirs is 1 where ours is 0
    presence,    // ours is 1 where their file has a tensor of that name
  };
  std::string ours, theirs;
  at::Tensor tensor;                 // ours
  std::vector<int64_t> their_shape;  // of as many values
  Form form = Form::same;

  // A tensor in our shape and order as it stands in their file, and the other way round.
  at::Tensor as_theirs(const at::Tensor& in_our_order) const;
  at::Tensor as_ours(const at::Tensor& in_their_order) const;
};

// Every parameter and buffer that both have. theirs: VQGanVAE's, Discriminator's, MaskGit's state_dict.
std::vector<NamedPair> vae_pairs(muse::VqganVaeImpl& vae);
std::vector<NamedPair> discriminator_pairs(muse::PictureDiscriminatorImpl& discriminator);
std::vector<NamedPair> vqgan_pairs(muse::VqganImpl& vqgan);
std::vector<NamedPair> transformer_pairs(muse::MaskGitTransformerImpl& transformer);
std::vector<NamedPair> maskgit_pairs(muse::MaskGitImpl& maskgit);

// Copies a state_dict into what the pairs name. Missing, misshapen and superfluous tensors are Errors that
// name them.
void load(const std::vector<NamedPair>& pairs, const TensorMap& state_dict);
// The same for an autoencoder that stands in a larger file, perhaps with its discriminator.
void load_vae(muse::VqganVaeImpl& vae, const TensorMap& state_dict);
// The part of a state_dict below a prefix ("vae."), without it.
TensorMap part_of(const TensorMap& state_dict, const std::string& prefix);

// As their load_state_dict wants it, with what they keep beside weights.
TensorMap vqgan_state_dict(muse::VqganImpl& vqgan);
TensorMap vae_state_dict(muse::VqganVaeImpl& vae);
// condition_vae: empty where the vae itself reads the smaller pictures.
TensorMap maskgit_state_dict(muse::MaskGitImpl& maskgit, muse::VqganVae vae, muse::VqganVae condition_vae);
void load_maskgit(muse::MaskGitImpl& maskgit, const TensorMap& state_dict);

}  // namespace melete::muse_maskgit_pytorch
