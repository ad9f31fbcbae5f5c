#include "pretrained/vocos.h"

#include <algorithm>

#include "core/autocast.h"
#include "core/base/error.h"
#include "nn/activation.h"
#include "nn/feed_forward.h"
#include "nn/inverse_spectrum.h"

namespace melete {

namespace {

constexpr int64_t kKernel = 7;     // of all convolutions
constexpr double kEpsilon = 1e-6;  // of the norms
constexpr double kLoudest = 100;   // magnitudes are cut there
constexpr double kWeightDeviation = 0.02;

torch::nn::Conv1d convolution(int64_t in, int64_t out, int64_t groups) {
  return torch::nn::Conv1d(torch::nn::Conv1dOptions(in, out, kKernel).padding(kKernel / 2).groups(groups));
}

// What the paper starts from.
void start_small(const at::Tensor& weight, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  at::Tensor(weight).normal_(0, kWeightDeviation);
  at::Tensor(bias).zero_();
}

}  // namespace

void describe(Schema& s, VocosConfig& c) {
  s.option("input_dim", c.input_dim, "values of a frame").at_least(1);
  s.option("dim", c.dim, "channels of the blocks").at_least(1);
  s.option("inner_dim", c.inner_dim, "channels inside a block").at_least(1);
  s.option("layers", c.layers, "blocks").at_least(1);
  s.option("bandwidths", c.bandwidths, "that the norms tell apart; 0: none").at_least(0);
  s.option("n_fft", c.n_fft, "of the spectrum that it predicts").at_least(2).unit("samples");
  s.option("hop", c.hop, "between frames").at_least(1).unit("samples");
  s.option("edges", c.edges,
           "centre: frames are centred on multiples of the hop; same: each stands for a hop")
      .one_of({"centre", "same"});
  s.option("codebook_rows", c.codebook_rows, "of codebooks that its frames are sums of; 0: none").at_least(0);
}

VocosNormImpl::VocosNormImpl(int64_t dim, int64_t bandwidths) {
  const int64_t rows = std::max<int64_t>(1, bandwidths);
  weight = register_parameter("weight", at::ones({rows, dim}));
  bias = register_parameter("bias", at::zeros({rows, dim}));
}

at::Tensor VocosNormImpl::forward(const at::Tensor& x, int64_t bandwidth) {
  return at::layer_norm(in_float(x), {x.size(-1)}, weight[bandwidth], bias[bandwidth], kEpsilon);
}

VocosBlockImpl::VocosBlockImpl(const VocosConfig& config) {
  depthwise = register_module("depthwise", convolution(config.dim, config.dim, config.dim));
  norm = register_module("norm", VocosNorm(config.dim, config.bandwidths));
  expand = register_module("expand", torch::nn::Linear(config.dim, config.inner_dim));
  contract = register_module("contract", torch::nn::Linear(config.inner_dim, config.dim));
  scale = register_parameter("scale", at::full({config.dim}, 1.0 / static_cast<double>(config.layers)));
  start_small(depthwise->weight, depthwise->bias);
  start_small(expand->weight, expand->bias);
  start_small(contract->weight, contract->bias);
}

at::Tensor VocosBlockImpl::forward(const at::Tensor& x, int64_t bandwidth) {
  const at::Tensor hidden = melete::gelu(project(norm(depthwise(x).transpose(1, 2), bandwidth), expand));
  return x + (scale * project(hidden, contract)).transpose(1, 2);
}

VocosImpl::VocosImpl(const VocosConfig& config) : config_(config) {
  input = register_module("input", convolution(config.input_dim, config.dim, 1));
  start_small(input->weight, input->bias);
  norm = register_module("norm", VocosNorm(config.dim, config.bandwidths));
  for (int64_t i = 0; i < config.layers; ++i) blocks->push_back(VocosBlock(config));
  register_module("blocks", blocks);
  final_norm = register_module("final_norm", VocosNorm(config.dim, 0));
  output = register_module("output", torch::nn::Linear(config.dim, config.n_fft + 2));
  if (config.codebook_rows > 0)
    codebooks = register_buffer("codebooks", at::randn({config.codebook_rows, config.input_dim}));
}

at::Tensor VocosImpl::forward(const at::Tensor& frames, int64_t bandwidth) {
  require(frames.dim() == 3 && frames.size(2) == config_.input_dim,
          "[vocos] expected [batch, frames, {}], got {} values a frame", config_.input_dim, frames.size(-1));
  require(bandwidth >= 0 && bandwidth < std::max<int64_t>(1, config_.bandwidths),
          "[vocos] expected a bandwidth of 0 to {}, got {}", std::max<int64_t>(1, config_.bandwidths) - 1,
          bandwidth);
  at::Tensor x = norm(input(frames.transpose(1, 2)).transpose(1, 2), bandwidth).transpose(1, 2);
  for (const auto& block : *blocks) x = block->as<VocosBlockImpl>()->forward(x, bandwidth);
  const auto halves =
      project(final_norm(x.transpose(1, 2), 0), output).to(at::kFloat).transpose(1, 2).chunk(2, 1);
  const at::Tensor magnitude = halves[0].exp().clamp_max(kLoudest);
  const at::Tensor spectrum = at::complex(magnitude * halves[1].cos(), magnitude * halves[1].sin());
  return inverse_stft(spectrum, {config_.n_fft, config_.hop, config_.n_fft},
                      config_.edges == "same" ? FrameEdges::same : FrameEdges::centre);
}

at::Tensor VocosImpl::frames_of_codes(const at::Tensor& codes, int64_t codebook_size) const {
  require(codebooks.defined() && codes.size(-1) * codebook_size <= codebooks.size(0),
          "[vocos] {} codebooks of {} need {} rows, it has {}", codes.size(-1), codebook_size,
          codes.size(-1) * codebook_size, config_.codebook_rows);
  const at::Tensor offsets = at::arange(codes.size(-1), codes.options()) * codebook_size;
  return at::embedding(codebooks, codes + offsets).sum(-2);
}

}  // namespace melete
