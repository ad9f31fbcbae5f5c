#include "systems/voicebox/voicebox.h"

#include <numbers>

#include "core/base/error.h"
#include "nn/activation.h"
#include "nn/dense.h"
#include "nn/depthwise.h"
#include "nn/draws.h"
#include "nn/feed_forward.h"
#include "systems/voicebox/masks.h"
#include "systems/voicebox/stretch.h"

namespace melete::voicebox {

void describe(Schema& s, PositionConfig& c) {
  s.option("kernel", c.kernel, "of the convolution that positions come from, odd").at_least(1).unit("frames");
  s.option("groups", c.groups, "of channels in it; 0: each channel alone").at_least(0);
}

void describe(Schema& s, VoiceboxConfig& c) {
  s.option("frame_dim", c.frame_dim, "values of a frame; 0: as many as the frames have").at_least(0);
  s.option("tokens", c.tokens, "phonemes or semantic tokens that tell what to say; 0: none").at_least(0);
  s.option("token_dim", c.token_dim, "of their embeddings").at_least(1);
  s.option("time_dim", c.time_dim, "of the time's embedding; 0: four times the transformer's dim")
      .at_least(0);
  s.option("project_frames", c.project_frames, "to the transformer's dim before the input layer");
  s.option("skip_noise", c.skip_noise,
           "the network guesses only what noisy frames do not tell by themselves");
  s.section("draft", c.draft, "from what is said alone, for the flow to begin around");
  s.section("positions", c.positions, "convolution that tells frames apart by their neighbours");
  s.section("transformer", c.transformer, "between input and output");
}

PositionConvolutionImpl::PositionConvolutionImpl(const PositionConfig& config, int64_t dim) {
  require(config.kernel % 2 == 1, "[voicebox] expected an odd positions.kernel, got {}", config.kernel);
  const int64_t groups = config.groups > 0 ? config.groups : dim;
  require(dim % groups == 0, "[voicebox] {} channels do not divide into {} positions.groups", dim, groups);
  convolution = register_module(
      "convolution",
      torch::nn::Conv1d(
          torch::nn::Conv1dOptions(dim, dim, config.kernel).padding(config.kernel / 2).groups(groups)));
}

at::Tensor PositionConvolutionImpl::forward(const at::Tensor& x, const at::Tensor& valid) {
  at::Tensor padding;
  if (valid.defined()) padding = valid.logical_not().unsqueeze(2);
  const at::Tensor frames = padding.defined() ? x.masked_fill(padding, 0) : x;
  const bool alone = convolution->options.groups() == frames.size(2);
  const at::Tensor y =
      melete::gelu(alone ? depthwise_over_time(frames, convolution->weight, convolution->bias)
                         : convolution(frames.transpose(1, 2)).transpose(1, 2));
  return padding.defined() ? y.masked_fill(padding, 0) : y;
}

VoiceboxImpl::VoiceboxImpl(const VoiceboxConfig& config) : config_(config) {
  TransformerConfig& inner = config_.transformer;
  if (config_.time_dim == 0) config_.time_dim = 4 * inner.dim;
  inner.condition_dim = config_.time_dim;
  require(inner.dim % 2 == 0, "[voicebox] expected an even transformer.dim, got {}", inner.dim);
  if (config.project_frames)
    frame_projection = register_module("frame_projection", torch::nn::Linear(config.frame_dim, inner.dim));
  time_frequencies = register_parameter("time_frequencies", at::randn({inner.dim / 2}));
  time_projection = register_module("time_projection", torch::nn::Linear(inner.dim, config_.time_dim));
  if (told())
    token_embedding =
        register_module("token_embedding", torch::nn::Embedding(config.tokens + 1, config.token_dim));
  null_frame = register_buffer("null_frame", at::zeros({config.input_dim()}));
  input = register_module(
      "input", torch::nn::Linear(2 * config.input_dim() + (told() ? config.token_dim : 0) + config.draft.dim,
                                 inner.dim));
  position_convolution =
      register_module("position_convolution", PositionConvolution(config.positions, inner.dim));
  transformer = register_module("transformer", Transformer(inner));
  output = register_module("output", linear(inner.dim, config.frame_dim, false));
  if (config.draft.dim == 0) return;
  require(told(), "[voicebox] a draft needs to be told what to say");
  drafter = register_module("drafter", Draft(config.draft, config.tokens, config.frame_dim));
}

at::Tensor VoiceboxImpl::project_frames(const at::Tensor& frames) {
  return frame_projection.is_empty() ? frames : project(frames, frame_projection);
}

// The time as sines and cosines of learned frequencies: [batch] or [1] or [] -> [batch, time_dim]
at::Tensor VoiceboxImpl::embed_times(const at::Tensor& times, int64_t batch) {
  const at::Tensor angle = times.reshape({-1, 1}) * time_frequencies * 2 * std::numbers::pi;
  const at::Tensor waves = at::cat({angle.sin(), angle.cos()}, -1);
  return at::silu(project(waves, time_projection)).expand({batch, -1});
}

std::pair<at::Tensor, at::Tensor> VoiceboxImpl::paces(const Condition& given, int64_t frames) const {
  const at::Tensor& tokens = given.tokens;
  // Where the mask is that of the tokens, padding is stretched like everything else.
  const bool by_row = given.valid.defined() && given.valid.size(1) == frames;
  return {row_lengths(by_row ? tokens >= 0 : at::Tensor(), tokens.size(0), tokens.size(1), tokens.device()),
          row_lengths(by_row ? given.valid : at::Tensor(), tokens.size(0), frames, tokens.device())};
}

at::Tensor VoiceboxImpl::embed_tokens(const Condition& given, int64_t frames) {
  at::Tensor ids = given.tokens.masked_fill(given.tokens < 0, config_.tokens);
  if (given.dropped.defined()) ids = ids.masked_fill(given.dropped.unsqueeze(1), config_.tokens);
  const at::Tensor embedded = token_embedding(ids);
  if (ids.size(1) == frames) return embedded;
  const auto [from, to] = paces(given, frames);
  return stretch(embedded, from, to, frames);
}

Drafted VoiceboxImpl::draft(const Condition& given, Draws* draws) {
  if (drafter.is_empty()) return {};
  require(given.tokens.defined(), "[voicebox] a draft needs to be told what to say");
  const int64_t frames = given.context.size(1);
  if (given.tokens.size(1) == frames) return drafter->forward(given.tokens, draws);
  const auto [from, to] = paces(given, frames);
  return drafter->forward(stretch_tokens(given.tokens, from, to, frames), draws);
}

VoiceboxImpl::Prepared VoiceboxImpl::prepare(const Condition& given, const Drafted& drafted) {
  const int64_t frames = given.context.size(1), width = config_.input_dim();
  require(given.context.dim() == 3 && given.context.size(2) == config_.frame_dim,
          "[voicebox] expected a context [batch, frames, {}], got {} values a frame", config_.frame_dim,
          given.context.size(-1));
  require(given.tokens.defined() == told(), "[voicebox] a model of {} tokens was given {}", config_.tokens,
          given.tokens.defined() ? "some" : "none");
  Prepared result;
  result.drafted = drafted.defined() ? drafted : draft(given);
  at::Tensor context = project_frames(result.drafted.relative(given.context));
  if (given.hidden.defined()) context = context * given.hidden.logical_not().unsqueeze(2);
  if (given.dropped.defined())
    context = at::where(given.dropped.view({-1, 1, 1}), null_frame.to(context.scalar_type()), context);

  // The input layer is linear, so x has its own columns, and these are the others'.
  std::vector<at::Tensor> parts;
  if (told()) parts.push_back(embed_tokens(given, frames));
  if (result.drafted.defined()) {
    at::Tensor hidden = result.drafted.hidden.detach();  // the flow reads the draft, it does not change it
    if (given.dropped.defined()) hidden = hidden.masked_fill(given.dropped.view({-1, 1, 1}), 0);
    parts.push_back(hidden.to(context.scalar_type()));
  }
  parts.push_back(context);
  const at::Tensor others = at::cat(parts, -1);
  result.input = dense(others, input->weight.narrow(1, width, others.size(2)), input->bias);
  result.valid = given.valid;
  if (given.valid.defined() && given.valid.size(1) != frames)
    result.valid = stretch_mask(given.valid, frames);
  result.positions = transformer->positions(frames);
  return result;
}

at::Tensor VoiceboxImpl::forward(const at::Tensor& noisy, const at::Tensor& times, const Prepared& prepared,
                                 Draws* draws) {
  const int64_t batch = prepared.input.size(0), rows = noisy.size(0);
  require(batch % rows == 0 && noisy.size(1) == prepared.input.size(1),
          "[voicebox] {} rows of {} frames do not fit {} conditions of {}", rows, noisy.size(1), batch,
          prepared.input.size(1));
  const at::Tensor relative = prepared.drafted.relative(noisy);
  const at::Tensor own = dense(project_frames(relative), input->weight.narrow(1, 0, config_.input_dim()), {});
  at::Tensor x = (prepared.input.view({batch / rows, rows, noisy.size(1), -1}) + own).flatten(0, 1);
  x = position_convolution(x, prepared.valid) + x;
  at::Tensor steering = embed_times(times, times.numel() == 1 ? batch : rows);
  if (steering.size(0) != batch) steering = steering.repeat({batch / rows, 1});
  x = transformer(x, prepared.positions, prepared.valid, steering, draws);
  const at::Tensor guess = project(x, output);
  const at::Tensor flow = config_.skip_noise ? with_own_share(guess, relative, times) : guess;
  return prepared.drafted.defined() ? flow * prepared.drafted.deviation.detach() : flow;
}

// On the way x = (1 - t) noise + t speech, both of deviation 1, the line through x that is nearest to the
// flow is (2t - 1) / s x with s = t^2 + (1 - t)^2, and what is left of the flow has a deviation of 1 /
// sqrt(s).
at::Tensor VoiceboxImpl::with_own_share(const at::Tensor& guess, const at::Tensor& noisy,
                                        const at::Tensor& times) const {
  const int64_t rows = noisy.size(0), frames = noisy.size(1);
  const at::Tensor t = times.reshape({-1, 1, 1}).to(at::kFloat);
  const at::Tensor s = t.square() + (1 - t).square();
  const at::Tensor own = (2 * t - 1) / s * noisy;  // [rows, frames, frame_dim]
  const at::Tensor by_condition = guess.view({-1, rows, frames, config_.frame_dim}) / s.sqrt();
  return (by_condition + own).flatten(0, 1);
}

}  // namespace melete::voicebox
