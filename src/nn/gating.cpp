#include "nn/gating.h"

#include "core/base/error.h"

namespace melete {

FilmImpl::FilmImpl(int64_t dim, int64_t condition_dim) {
  condition = register_module("condition", torch::nn::Linear(condition_dim, 2 * dim));
}

at::Tensor FilmImpl::forward(const at::Tensor& x, const at::Tensor& given) {
  const auto gamma_beta = condition(given).chunk(2, -1);
  return x * gamma_beta[0] + gamma_beta[1];
}

SqueezeExciteImpl::SqueezeExciteImpl(int64_t dim, bool over_channels, int64_t reduction, int64_t least)
    : over_channels_(over_channels) {
  const int64_t inner = std::max(least, dim / reduction);
  squeeze = register_module("squeeze", CausalConv1d(dim, inner, 1));
  excite = register_module("excite", CausalConv1d(inner, dim, 1));
}

at::Tensor SqueezeExciteImpl::forward(const at::Tensor& x, FrameHistory* history) {
  const int64_t axis = over_channels_ ? 1 : 2;
  at::Tensor count = at::arange(1, x.size(axis) + 1, x.options().dtype(at::kFloat));
  if (over_channels_) count = count.unsqueeze(1);
  at::Tensor sum = x.cumsum(axis, at::kFloat);
  if (history != nullptr && !over_channels_) {
    at::Tensor& sum_before = history->of(*this);  // [batch, dim, 1]
    at::Tensor& count_before =
        history->of(*squeeze.get());  // [1]; a convolution of one tap keeps nothing itself
    if (sum_before.defined()) {
      sum = sum + sum_before;
      count = count + count_before;
    }
    sum_before = sum.narrow(2, sum.size(2) - 1, 1).clone();
    count_before = count.narrow(0, count.size(0) - 1, 1).clone();
  }
  const at::Tensor mean = sum / count;
  return x * at::sigmoid(excite(at::silu(squeeze(mean))));
}

GateLoopImpl::GateLoopImpl(int64_t dim) : GateLoopImpl(dim, GateLoopOptions{}) {}

GateLoopImpl::GateLoopImpl(int64_t dim, const GateLoopOptions& options) : backwards_(options.backwards) {
  if (options.norm) norm_scale = register_parameter("norm_scale", at::ones({dim}));
  qkva = register_module("qkva", torch::nn::Linear(torch::nn::LinearOptions(dim, 3 * dim).bias(false)));
  if (options.output_norm) output_norm = register_module("output_norm", Norm(dim));
}

at::Tensor GateLoopImpl::forward(const at::Tensor& x, FrameHistory* history) {
  require(history == nullptr || !backwards_, "[gate loop] one that runs backwards needs the whole sound");
  const at::Tensor frames = backwards_ ? x.flip(1) : x;
  const at::Tensor normed = norm_scale.defined() ? rms_norm(frames, norm_scale) : frames;
  const auto parts = qkva(normed).to(at::kFloat).chunk(3, -1);
  at::Tensor decay = at::sigmoid(parts[2]), input = parts[1];
  at::Tensor* before = history != nullptr ? &history->of(*this) : nullptr;  // [batch, 1, dim]
  const bool goes_on = before != nullptr && before->defined();
  if (goes_on) {  // the last state as a frame in front
    input = at::cat({*before, input}, 1);
    decay = at::cat({at::zeros_like(*before), decay}, 1);
  }
  at::Tensor states = linear_scan(decay, input);
  if (goes_on) states = states.narrow(1, 1, x.size(1));
  if (before != nullptr) *before = states.narrow(1, x.size(1) - 1, 1).clone();
  at::Tensor looped = parts[0] * states;
  if (!output_norm.is_empty()) looped = output_norm(looped);
  return backwards_ ? looped.flip(1) : looped;
}

at::Tensor linear_scan(at::Tensor decay, at::Tensor input) {
  const int64_t time = input.size(1);
  for (int64_t reach = 1; reach < time; reach *= 2) {
    // What `reach` frames ago held, decayed over the frames since.
    const at::Tensor tail = decay.narrow(1, reach, time - reach);
    const at::Tensor next =
        at::addcmul(input.narrow(1, reach, time - reach), tail, input.narrow(1, 0, time - reach));
    const at::Tensor next_decay = tail * decay.narrow(1, 0, time - reach);
    input = at::cat({input.narrow(1, 0, reach), next}, 1);
    decay = at::cat({decay.narrow(1, 0, reach), next_decay}, 1);
  }
  return input;
}

}  // namespace melete
