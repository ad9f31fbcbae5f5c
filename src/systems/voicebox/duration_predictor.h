// How long each phoneme is to last: the same transformer without a time, over phonemes instead of frames.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "config/schema.h"
#include "systems/voicebox/voicebox.h"

namespace melete::voicebox {

struct DurationConfig {
  int64_t phonemes = 256;
  int64_t phoneme_dim = 512;
  int64_t condition_dim =
      1;  // values a phoneme that are known beside it: 1, for the durations of its neighbours
  bool project_condition = true;  // to the transformer's dim; else it must have that
  PositionConfig positions;
  TransformerConfig transformer;  // 512 wide, 10 deep, 8 heads, no register tokens and no skips by default
  DurationConfig();
};
void describe(Schema& schema, DurationConfig& config);

struct DurationInput {
  at::Tensor phonemes;   // int64 [batch, n]; negative: padding
  at::Tensor condition;  // [batch, any, condition_dim]: cut or filled up with zeros to n
  at::Tensor hidden;     // bool [batch, as condition] or undefined: condition that is not seen
  at::Tensor dropped;    // bool [batch] or undefined: rows without any
  at::Tensor valid;      // bool [batch, n] or undefined: where phonemes are not negative
};

struct DurationPredictorImpl : torch::nn::Module {
  explicit DurationPredictorImpl(const DurationConfig& config);

  // -> [batch, n] in frames, not rounded
  at::Tensor forward(const DurationInput& input, Draws* draws = nullptr);
  // The same, away from what it says without a condition; no gradient.
  at::Tensor guided(const DurationInput& input, double guidance);

  const DurationConfig& config() const { return config_; }

  torch::nn::Linear condition_projection{nullptr};  // where project_condition says so
  torch::nn::Embedding phoneme_embedding{nullptr};
  at::Tensor null_condition;         // [dim], in place of a dropped condition; never learned
  torch::nn::Linear input{nullptr};  // of (phoneme, condition)
  PositionConvolution position_convolution{nullptr};
  Transformer transformer{nullptr};
  torch::nn::Linear output{nullptr};

 private:
  DurationConfig config_;
};
TORCH_MODULE(DurationPredictor);

// Each phoneme as often as its duration says, rounded, at least once; padding takes no time.
// phonemes int64 [batch, n], durations [batch, n] -> [batch, frames], filled up with -1
at::Tensor repeat_by_durations(const at::Tensor& phonemes, const at::Tensor& durations);
// voicebox-pytorch: durations are cut, not rounded, padding lasts as well, and short rows are filled up with
// 0.
at::Tensor repeat_as_upstream(const at::Tensor& phonemes, const at::Tensor& durations);

struct DurationLossConfig {
  double condition_drop = 0.2;
  double hide_all = 0.2;
  double hidden_share_low = 0.1, hidden_share_high = 1;
};
void describe(Schema& schema, DurationLossConfig& config);

// Which phonemes' durations are hidden from the predictor: a stretch of each row, or all of it.
// Draws: mask_fraction, mask_start, hide_all. valid bool [batch, n] -> bool [batch, n]
at::Tensor hidden_durations(const at::Tensor& valid, const DurationLossConfig& config, Draws& draws);

struct DurationLosses {
  at::Tensor total;      // scalar: mean absolute error over hidden phonemes, averaged over rows
  at::Tensor chance;     // scalar: the same for someone who always says the mean of all
  at::Tensor durations;  // [batch, n] as guessed
};
// input.hidden says what counts; durations [batch, n] in frames
DurationLosses duration_losses(DurationPredictor& model, const DurationInput& input,
                               const at::Tensor& durations, Draws* draws = nullptr);

}  // namespace melete::voicebox
