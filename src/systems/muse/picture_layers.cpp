#include "systems/muse/picture_layers.h"

#include <cmath>

#include "core/autocast.h"

namespace melete::muse {

namespace {

torch::nn::GroupNorm group_norm(int64_t groups, int64_t channels) {
  return torch::nn::GroupNorm(torch::nn::GroupNormOptions(groups, channels));
}

at::Tensor gated(const at::Tensor& x) {
  const auto halves = x.chunk(2, 1);
  return halves[0] * at::sigmoid(halves[1]);
}

}  // namespace

at::Tensor channels_last(const at::Tensor& x) {
  return x.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor activated(at::Tensor x) {
  return at::leaky_relu_(x, 0.1);
}

torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding));
}

torch::nn::Conv2d halving(int64_t in, int64_t out) {
  return convolution(in, out, 4, 2, 1);
}

DoublingImpl::DoublingImpl(int64_t in, int64_t out) {
  // LibTorch's own start: uniform by the fan-in of the transposed weight.
  const double bound = 1 / std::sqrt(static_cast<double>(out * 16));
  weight = register_parameter("weight", at::empty({in, out, 4, 4}).uniform_(-bound, bound));
  bias = register_parameter("bias", at::empty({out}).uniform_(-bound, bound));
}

// With the input padded by one, position (p, q) of a 2 x 2 convolution sees rows p - 1 and p. An even output
// row 2 i takes kernel rows 3 and 1 of inputs i - 1 and i, which is position p = i; an odd one 2 i + 1 takes
// kernel rows 2 and 0 of inputs i and i + 1, which is position p = i + 1. Columns likewise.
at::Tensor DoublingImpl::forward(const at::Tensor& x) {
  const int64_t out = weight.size(1), height = x.size(2), width = x.size(3);
  // [in, out, 4, 4] -> kernel rows (3, 1), (2, 0): [in, out, row phase, 2, column phase, 2]
  const at::Tensor taps = weight
                              .view({weight.size(0), out, 2, 2, 2, 2})  // kernel row 2 a + b
                              .permute({0, 1, 3, 2, 5, 4})
                              .flip({2, 3, 4, 5});
  // -> [row phase, column phase, out, in, 2, 2]
  const at::Tensor kernel = taps.permute({2, 4, 1, 0, 3, 5}).reshape({4 * out, weight.size(0), 2, 2});
  const at::Tensor all = at::conv2d(x, kernel, bias.repeat({4}), 1, 1);  // [batch, 4 out, h + 1, w + 1]
  std::vector<at::Tensor> rows;
  for (int64_t a = 0; a < 2; ++a) {
    std::vector<at::Tensor> columns;
    for (int64_t b = 0; b < 2; ++b)
      columns.push_back(all.narrow(1, (2 * a + b) * out, out)
                            .narrow(2, a, height)
                            .narrow(3, b, width)
                            .permute({0, 2, 3, 1}));
    rows.push_back(at::stack(columns, 3));  // [batch, h, w, 2, out]
  }
  const at::Tensor pixels = at::stack(rows, 2);  // [batch, h, 2, w, 2, out]
  return pixels.view({x.size(0), 2 * height, 2 * width, out}).permute({0, 3, 1, 2});
}

ResidualBlockImpl::ResidualBlockImpl(int64_t channels, int64_t groups) {
  first = register_module("first", convolution(channels, channels, 3, 1, 1));
  first_norm = register_module("first_norm", group_norm(groups, channels));
  second = register_module("second", convolution(channels, channels, 3, 1, 1));
  second_norm = register_module("second_norm", group_norm(groups, channels));
  last = register_module("last", convolution(channels, channels, 1));
}

at::Tensor ResidualBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor hidden = activated(first_norm(in_float(first(x))));
  return last(activated(second_norm(in_float(second(hidden))))) + x;
}

GatedBlockImpl::GatedBlockImpl(int64_t channels, int64_t groups) {
  first = register_module("first", convolution(channels, 2 * channels, 3, 1, 1));
  first_norm = register_module("first_norm", group_norm(groups, channels));
  second = register_module("second", convolution(channels, 2 * channels, 3, 1, 1));
  second_norm = register_module("second_norm", group_norm(groups, channels));
  last = register_module("last", convolution(channels, channels, 1));
}

at::Tensor GatedBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor hidden = first_norm(in_float(gated(first(x))));
  return last(second_norm(in_float(gated(second(hidden))))) + x;
}

}  // namespace melete::muse
