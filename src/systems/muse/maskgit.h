// MaskGit: learns to fill in the masked tokens of a picture from the others, from text, and, for
// super-resolution, from the tokens of a smaller picture; and a critic that learns to tell which tokens were
// filled in wrongly. Its tokens may be anybody's: nothing here knows pictures.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "generate/mask_schedule.h"
#include "nn/draws.h"
#include "systems/muse/maskgit_transformer.h"

namespace melete::muse {

struct MaskGitConfig {
  MaskGitTransformerConfig transformer;
  std::string critic = "none";                  // or the transformer itself, or one of its own
  MaskGitTransformerConfig critic_transformer;  // of its own
  double text_drop = 0.5;                       // share of pictures trained without their text
  double self_condition_share = 0.9;            // of steps with self-conditioning
  double unmasked_share = 0;                    // of masked tokens that are shown and predicted all the same
  double critic_weight = 1;
  std::string schedule = "cosine";  // share of masked tokens by time

  MaskGitConfig();
};
void describe(Schema& schema, MaskGitConfig& config);

// What one training step looks at. tokens [batch, positions] int64.
struct MaskedTokens {
  at::Tensor input;   // with the mask token at hidden positions
  at::Tensor labels;  // the true token where it is asked for, -1 elsewhere
  at::Tensor hidden;  // bool: where the mask token stands
  // int64 [asked] of the tokens that are asked for: their places in all pictures, row after row, and whose
  // they are. Drawn on the host, so that nobody has to ask a device how many there are.
  at::Tensor places, rows;
};

using NamedLosses = std::vector<std::pair<std::string, at::Tensor>>;

struct MaskGitImpl : torch::nn::Module {
  explicit MaskGitImpl(const MaskGitConfig& config);

  struct Batch {
    at::Tensor tokens;     // [batch, positions] int64
    at::Tensor text;       // [batch, length, text_dim], rows of zeros are padding
    at::Tensor condition;  // [batch, n] int64 tokens of the smaller picture, or undefined
  };

  // Which tokens are hidden, drawn anew for every picture.
  MaskedTokens mask(const at::Tensor& tokens, Draws& draws) const;

  struct Losses {
    at::Tensor total;
    NamedLosses named;  // prediction, accuracy (of masked tokens), critic, critic_accuracy; detached scalars
    // [batch], detached: how many tokens of each were asked for, their mean prediction loss, and how many
    // were predicted rightly.
    at::Tensor asked, by_picture, right;
    MaskedTokens masked;
    at::Tensor self_conditioned;  // [batch, positions, dim] or undefined
    at::Tensor critic_input;      // [batch, positions] or undefined
  };
  struct LossOptions {
    bool only_prediction = false;  // without the critic
    double temperature = -1;       // of the tokens that the critic sees; below 0: drawn
    double text_drop = -1;         // share of pictures without their text; below 0: as the configuration says
    int64_t ignored_token = -1;    // one whose prediction is not counted
  };
  Losses losses(const Batch& batch, Draws& draws, LossOptions how);
  Losses losses(const Batch& batch, Draws& draws) { return losses(batch, draws, LossOptions()); }

  // How doubtful every token is, as a logit. -> [batch, positions]
  at::Tensor doubt(const at::Tensor& tokens, const MaskGitContext& context);
  at::Tensor doubt_of(const at::Tensor& embedded);  // of the reader's embedding, [..., dim] -> [...]
  // The transformer that a critic reads with.
  MaskGitTransformerImpl& critic_reader() { return critic.is_empty() ? *transformer : *critic; }

  bool has_critic() const { return config_.critic != "none"; }
  const MaskGitConfig& config() const { return config_; }

  MaskGitTransformer transformer{nullptr};
  MaskGitTransformer critic{nullptr};      // critic = "separate"
  torch::nn::Linear self_critic{nullptr};  // critic = "self": the transformer's embedding -> doubt

 private:
  at::Tensor keep_text(const at::Tensor& like, Draws& draws, double text_drop) const;

  MaskGitConfig config_;
};
TORCH_MODULE(MaskGit);

}  // namespace melete::muse
