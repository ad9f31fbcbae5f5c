// Voicebox (Le et al. 2023): a network that says in which direction noisy frames have to go to become speech,
// given the time on the way, what is known of the speech around them, and what is to be said.
//   x, context, tokens -> input layer -> convolutional positions -> transformer steered by the time -> flow
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <utility>

#include "config/schema.h"
#include "systems/voicebox/draft.h"
#include "systems/voicebox/transformer.h"

namespace melete::voicebox {

// What the network and the duration predictor have at their entrance.
struct PositionConfig {
  int64_t kernel = 31;  // odd
  int64_t groups = 0;   // of channels that see each other; 0: each sees only itself
};
void describe(Schema& schema, PositionConfig& config);

// gelu(convolution over frames), with padding kept out of it
struct PositionConvolutionImpl : torch::nn::Module {
  PositionConvolutionImpl(const PositionConfig& config, int64_t dim);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& valid);  // [batch, n, dim]

  torch::nn::Conv1d convolution{nullptr};
};
TORCH_MODULE(PositionConvolution);

struct VoiceboxConfig {
  int64_t frame_dim = 100;      // values of a frame
  int64_t tokens = 256;         // ids of phonemes or semantic tokens; 0: it is not told what to say
  int64_t token_dim = 512;      // of their embeddings
  int64_t time_dim = 0;         // of the embedding of the time; 0: four times the transformer's dim
  bool project_frames = false;  // to the transformer's dim before the input layer
  // The network guesses only what x does not tell by itself (Karras et al. 2022, for straight ways): learns
  // sooner, and has to carry no noise through. Frames are expected to have a deviation of 1.
  bool skip_noise = false;
  DraftConfig draft;  // what the flow begins around; none by default
  PositionConfig positions;
  TransformerConfig transformer;

  int64_t input_dim() const { return project_frames ? transformer.dim : frame_dim; }
};
void describe(Schema& schema, VoiceboxConfig& config);

// What a pass is told besides x and the time. Frames whose context is hidden are those to be made.
struct Condition {
  at::Tensor context;  // [batch, frames, frame_dim]: frames that are known
  at::Tensor hidden;   // bool [batch, frames] or undefined: context that is not seen
  at::Tensor tokens;   // int64 [batch, n], any n, negative: padding; undefined where the model takes none
  at::Tensor valid;    // bool [batch, frames], or [batch, n] as the tokens have it, or undefined: no padding
  at::Tensor dropped;  // bool [batch] or undefined: rows that go without context and tokens
};

struct VoiceboxImpl : torch::nn::Module {
  explicit VoiceboxImpl(const VoiceboxConfig& config);

  // Whatever does not depend on x and the time: made once, used for every step of a solver.
  struct Prepared {
    at::Tensor input;  // [batch, frames, dim]: the condition's share of the input layer
    at::Tensor valid;  // bool [batch, frames] or undefined
    Rotation positions;
    Drafted drafted;
  };
  // drafted: what draft() says of the same condition, where that is known already
  Prepared prepare(const Condition& condition, const Drafted& drafted = {});

  // Where the flow begins: noise of deviation 1 is to be put around it. Nothing where there is no draft.
  Drafted draft(const Condition& condition, Draws* draws = nullptr);

  // x [batch, frames, frame_dim], times [batch] or one for all -> flow [batch, frames, frame_dim].
  // Of a prepared batch that is a multiple of x's, each x meets every one of its conditions.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& times, const Prepared& prepared,
                     Draws* draws = nullptr);

  const VoiceboxConfig& config() const { return config_; }
  bool told() const { return config_.tokens > 0; }

  torch::nn::Linear frame_projection{nullptr};  // where project_frames says so
  at::Tensor time_frequencies;                  // [dim / 2]
  torch::nn::Linear time_projection{nullptr};
  torch::nn::Embedding token_embedding{nullptr};  // one row more than tokens: told nothing
  at::Tensor null_frame;                          // [input_dim], in place of a dropped context; never learned
  torch::nn::Linear input{nullptr};               // of (x, tokens, draft, context)
  PositionConvolution position_convolution{nullptr};
  Transformer transformer{nullptr};
  torch::nn::Linear output{nullptr};
  Draft drafter{nullptr};  // where config().draft says so

 private:
  at::Tensor with_own_share(const at::Tensor& guess, const at::Tensor& noisy, const at::Tensor& times) const;
  at::Tensor project_frames(const at::Tensor& frames);
  // How many tokens of each row belong to how many of its frames. int64 [batch] each
  std::pair<at::Tensor, at::Tensor> paces(const Condition& condition, int64_t frames) const;
  at::Tensor embed_tokens(const Condition& condition, int64_t frames);
  at::Tensor embed_times(const at::Tensor& times, int64_t batch);

  VoiceboxConfig config_;
};
TORCH_MODULE(Voicebox);

}  // namespace melete::voicebox
