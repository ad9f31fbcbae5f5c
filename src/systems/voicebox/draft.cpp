#include "systems/voicebox/draft.h"

#include "core/base/error.h"
#include "losses/flow_matching.h"
#include "nn/activation.h"
#include "nn/depthwise.h"
#include "nn/draws.h"
#include "nn/feed_forward.h"

namespace melete::voicebox {

namespace {

constexpr double kDeviationPace =
    10;  // the deviation falls by a factor of four in the first hundreds of steps
constexpr int64_t kPhonemeKernel = 5;
constexpr int64_t kPlaces = 6;  // values that tell where in its phoneme a frame is

torch::nn::Conv1d each_alone(int64_t dim, int64_t kernel) {
  return torch::nn::Conv1d(torch::nn::Conv1dOptions(dim, dim, kernel).padding(kernel / 2).groups(dim));
}

at::Tensor over_time(const at::Tensor& x, const torch::nn::Conv1d& convolution, const at::Tensor& padding) {
  return depthwise_over_time(x.masked_fill(padding, 0), convolution->weight, convolution->bias);
}

// [batch, frames, kPlaces]: the share that is past, how near beginning and end are, and how long it lasts.
at::Tensor places_of(const Runs& runs) {
  const at::Tensor count = runs.count.to(at::kFloat), before = runs.place.to(at::kFloat);
  const at::Tensor after = count - 1 - before, share = (before + 0.5) / count;
  return at::stack({share, 4 * share * (1 - share), (-0.5 * before).exp(), (-0.5 * after).exp(), count.log(),
                    count.reciprocal()},
                   -1);
}

}  // namespace

void describe(Schema& s, DraftConfig& c) {
  s.option("dim", c.dim, "width; 0: no draft, the flow begins at plain noise").at_least(0);
  s.option("depth", c.depth, "layers over phonemes").at_least(1);
  s.option("heads", c.heads, "of their attention").at_least(1);
  s.option("blocks", c.blocks, "of convolutions over frames").at_least(1);
  s.option("kernel", c.kernel, "of the blocks, odd").at_least(1).unit("frames");
  s.option("feed_forward_multiplier", c.feed_forward_multiplier,
           "the inner width is two thirds of this many times dim")
      .at_least(0.1);
  s.option("dropout", c.dropout, "share of hidden values dropped in training").at_least(0).at_most(0.99);
}

Runs runs_of(const at::Tensor& tokens) {
  const int64_t batch = tokens.size(0), frames = tokens.size(1);
  Runs runs;
  const at::Tensor begins =
      at::cat({at::zeros({batch, 1}, tokens.options()),
               tokens.narrow(1, 1, frames - 1).ne(tokens.narrow(1, 0, frames - 1)).to(at::kLong)},
              1);
  runs.index = begins.cumsum(1);
  // As many as there can be, where to ask would be to wait for the device.
  const int64_t most = tokens.is_cpu() ? runs.index.max().item<int64_t>() + 1 : frames;
  runs.tokens = at::full({batch, most}, -1, tokens.options()).scatter_(1, runs.index, tokens);
  const at::Tensor counts =
      at::zeros({batch, most}, tokens.options()).scatter_add_(1, runs.index, at::ones_like(tokens));
  runs.count = counts.gather(1, runs.index);
  runs.place = at::arange(frames, tokens.options()) - (counts.cumsum(1) - counts).gather(1, runs.index);
  return runs;
}

DraftBlockImpl::DraftBlockImpl(const DraftConfig& config) : dropout_(config.dropout) {
  const auto inner =
      static_cast<int64_t>(static_cast<double>(config.dim) * config.feed_forward_multiplier * 2 / 3);
  convolution = register_module("convolution", each_alone(config.dim, config.kernel));
  norm = register_module("norm", RmsNorm(config.dim));
  input = register_module("input", linear(config.dim, 2 * inner, true));
  output = register_module("output", linear(inner, config.dim, true));
}

at::Tensor DraftBlockImpl::forward(const at::Tensor& x, const at::Tensor& padding, Draws* draws) {
  const at::Tensor hidden =
      gated_gelu(project(norm(over_time(x, convolution, padding)), input), GateOrder::value_first);
  return x + project(dropout(hidden, dropout_, draws), output);
}

at::Tensor Drafted::around(const at::Tensor& x) const {
  return defined() ? mean.detach().narrow(0, 0, x.size(0)) + deviation.detach() * x : x;
}

at::Tensor Drafted::relative(const at::Tensor& x) const {
  return defined() ? (x - mean.detach().narrow(0, 0, x.size(0))) / deviation.detach() : x;
}

DraftImpl::DraftImpl(const DraftConfig& config, int64_t tokens, int64_t frame_dim) : config_(config) {
  require(config.kernel % 2 == 1, "[draft] expected an odd kernel, got {}", config.kernel);
  require(config.dim % (2 * config.heads) == 0,
          "[draft] a width of {} does not divide into {} heads of even width", config.dim, config.heads);
  TransformerConfig layers;
  layers.dim = config.dim;
  layers.depth = config.depth;
  layers.heads = config.heads;
  layers.head_dim = config.dim / config.heads;
  layers.feed_forward_multiplier = config.feed_forward_multiplier;
  layers.feed_forward_dropout = config.dropout;
  layers.register_tokens = 0;
  layers.skip_connections = false;
  embedding = register_module("embedding", torch::nn::Embedding(tokens, config.dim));
  neighbours = register_module("neighbours", each_alone(config.dim, kPhonemeKernel));
  transformer = register_module("transformer", Transformer(layers));
  places = register_module("places", linear(kPlaces, config.dim, true));
  for (int64_t i = 0; i < config.blocks; ++i) blocks->push_back(DraftBlock(config));
  register_module("blocks", blocks);
  norm = register_module("norm", RmsNorm(config.dim));
  mean = register_module("mean", linear(config.dim, frame_dim, true));
  deviation = register_parameter("deviation", at::zeros({frame_dim}));
}

Drafted DraftImpl::forward(const at::Tensor& tokens, Draws* draws) {
  const Runs runs = runs_of(tokens);
  const at::Tensor there = runs.tokens >= 0;
  at::Tensor phonemes = embedding(runs.tokens.clamp_min(0));
  phonemes = phonemes + over_time(phonemes, neighbours, there.logical_not().unsqueeze(2));
  phonemes = transformer(phonemes, transformer->positions(phonemes.size(1)), there, at::Tensor(), draws);
  at::Tensor x = phonemes.gather(1, runs.index.unsqueeze(2).expand({-1, -1, config_.dim})) +
                 project(places_of(runs), places);
  const at::Tensor padding = (tokens < 0).unsqueeze(2);
  for (const auto& block : *blocks) x = block->as<DraftBlockImpl>()->forward(x, padding, draws);
  Drafted result;
  result.hidden = norm(x);
  result.mean = project(result.hidden, mean).to(at::kFloat);
  result.deviation = (kDeviationPace * deviation).exp();
  return result;
}

DraftLosses draft_losses(const Drafted& drafted, const at::Tensor& frames, const at::Tensor& valid) {
  DraftLosses losses;
  losses.rows = row_means((drafted.mean - frames).square().mean(-1), valid);
  const at::Tensor rest = (frames - drafted.mean.detach()) / drafted.deviation;
  losses.deviation =
      (row_means((0.5 * rest.square()).mean(-1), valid) + drafted.deviation.log().mean()).mean();
  return losses;
}

}  // namespace melete::voicebox
