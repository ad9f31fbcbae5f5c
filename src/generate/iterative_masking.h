// Iterative decoding of masked tokens (MaskGit, Chang et al. 2022): all tokens are predicted at once, the
// most doubtful ones are masked again, and so on with fewer and fewer masks. Pictures' tokens or a codec's:
// it sees rows of integers.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <string_view>

#include "config/schema.h"
#include "nn/draws.h"

namespace melete {

struct IterativeMaskingConfig {
  int64_t steps = 18;
  std::string schedule = "cosine";
  double temperature = 1;         // of sampled tokens at first; it falls to 0
  double filter_threshold = 0.9;  // the most likely tokens, this much less than all of them, may be sampled
  int64_t top_k = 0;              // so many of them instead; 0: as filter_threshold says
  bool remask = false;            // tokens that stood already may be masked again, by their own probability
  // As muse-maskgit-pytorch does it: a token that stands is doubted by what was predicted in its place.
  bool doubt_predictions = false;
  bool use_critic = true;   // where the model has one
  double critic_noise = 1;  // added to its doubts at first; it falls to 0
};
void describe(Schema& schema, IterativeMaskingConfig& config);

// What the decoder asks of a model. Tokens are [rows, positions] int64.
class MaskedModel {
 public:
  virtual ~MaskedModel() = default;
  virtual int64_t mask_token() const = 0;
  virtual at::Tensor logits(const at::Tensor& tokens) = 0;  // -> [rows, positions, tokens]
  virtual bool has_critic() const { return false; }
  virtual at::Tensor doubts(const at::Tensor& tokens);  // -> [rows, positions]
};

struct MaskingStart {
  at::Tensor tokens;  // [rows, positions]; masked ones may hold anything
  at::Tensor kept;    // bool, the same shape: tokens that stay whatever happens; undefined: none
  // How far the decoding has come already, 0 to 1: with a picture's own tokens, which of them are masked
  // first is drawn at random.
  double time = 0;
};

// One step as it was made, for those who watch.
struct MaskingStep {
  int64_t step;
  at::Tensor input;      // tokens with their masks
  at::Tensor logits;     // [rows, positions, tokens]
  at::Tensor predicted;  // a token for every position
  at::Tensor tokens;     // what the step ends with
};
using MaskingObserver = std::function<void(const MaskingStep&)>;

// Without gradient. -> tokens [rows, positions]
at::Tensor decode_masked(MaskedModel& model, const MaskingStart& start, const IterativeMaskingConfig& config,
                         Draws& draws, const MaskingObserver& observer = {});

// The index of the largest logit after Gumbel noise, which is a draw from their softmax at that temperature.
// logits [..., n] -> [...]
at::Tensor gumbel_sample(const at::Tensor& logits, double temperature, std::string_view what, Draws& draws);

}  // namespace melete
