#include "nn/multi_scale_discriminator.h"

namespace melete {

namespace {

constexpr double kSlope = 0.1;

torch::nn::Conv1d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return torch::nn::Conv1d(
      torch::nn::Conv1dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups));
}

// A grouped convolution that strides, by space to depth: `stride` samples side by side become as many
// channels, and the kernel shrinks by as much. LibTorch's own is slow when groups have few channels.
at::Tensor convolve(torch::nn::Conv1dImpl& layer, const at::Tensor& x) {
  const int64_t stride = layer.options.stride()->front(), groups = layer.options.groups();
  const int64_t out = layer.weight.size(0), in_group = layer.weight.size(1), kernel = layer.weight.size(2);
  if (stride == 1 || out / groups < 16 || x.size(2) < kernel) return layer.forward(x);
  const int64_t batch = x.size(0), channels = x.size(1), padding = kernel / 2;
  const int64_t frames = (x.size(2) + 2 * padding - kernel) / stride + 1;
  const int64_t taps = (kernel + stride - 1) / stride, wide = frames + taps - 1;
  const auto deepen = [&](const at::Tensor& rows, int64_t first, int64_t second, int64_t length) {
    return rows.view({first, second, length, stride})
        .transpose(2, 3)
        .reshape({first, second * stride, length});
  };
  const at::Tensor padded = at::constant_pad_nd(x, {padding, wide * stride - padding - x.size(2)});
  const at::Tensor weight = at::constant_pad_nd(layer.weight, {0, taps * stride - kernel});
  return at::conv1d(deepen(padded, batch, channels, wide), deepen(weight, out, in_group, taps), layer.bias,
                    /*stride=*/at::IntArrayRef{1}, /*padding=*/at::IntArrayRef{0},
                    /*dilation=*/at::IntArrayRef{1}, groups);
}

// Many channels over few frames are a matrix product over unfolded frames: LibTorch's convolution spends more
// time on rearranging such a weight than on using it.
at::Tensor convolve_unfolded(torch::nn::Conv1dImpl& layer, const at::Tensor& x) {
  const int64_t out = layer.weight.size(0), kernel = layer.weight.size(2), padding = kernel / 2;
  const at::Tensor windows = at::constant_pad_nd(x, {padding, padding}).unfold(2, kernel, 1);
  const at::Tensor rows = windows.permute({0, 2, 1, 3}).flatten(2);  // [batch, frames, channels * kernel]
  return at::linear(rows, layer.weight.view({out, -1}), layer.bias).transpose(1, 2);
}

}  // namespace

void describe(Schema& s, MultiScaleDiscriminatorConfig& c) {
  s.option("channels", c.channels, "channels after the first convolution").at_least(1);
  s.option("layers", c.layers, "strided layers").at_least(1);
  s.option("groups", c.groups, "groups of every strided layer").at_least(1);
  s.option("max_channels", c.max_channels, "channels grow four times a layer up to this").at_least(1);
}

MultiScaleDiscriminatorImpl::MultiScaleDiscriminatorImpl(const MultiScaleDiscriminatorConfig& config,
                                                         int64_t input_channels) {
  input = register_module("input", conv(input_channels, config.channels, 15));
  int64_t channels = config.channels;
  const int64_t count = std::min(config.layers, static_cast<int64_t>(config.groups.size()));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t wider = std::min(channels * 4, config.max_channels);
    layers->push_back(conv(channels, wider, 41, 4, config.groups[static_cast<size_t>(i)]));
    channels = wider;
  }
  register_module("layers", layers);
  hidden = register_module("hidden", conv(channels, channels, 5));
  output = register_module("output", conv(channels, 1, 3));
}

Judgement MultiScaleDiscriminatorImpl::forward(const at::Tensor& wave) {
  Judgement judgement;
  at::Tensor x = input(wave);
  for (const auto& layer : *layers) {
    x = at::leaky_relu(convolve(*layer->as<torch::nn::Conv1dImpl>(), x), kSlope);
    judgement.features.push_back(x);
  }
  judgement.logits = output(at::leaky_relu(convolve_unfolded(*hidden, x), kSlope));
  return judgement;
}

}  // namespace melete
