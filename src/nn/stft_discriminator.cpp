#include "nn/stft_discriminator.h"

#include <cmath>

#include "core/base/error.h"
#include "kernels/complex_conv.h"
#include "kernels/complex_elementwise.h"

namespace melete {

namespace {

// Frequency bins that the last convolution joins, whatever their number before it.
constexpr int64_t kOutputHeight = 16;

}  // namespace

void describe(Schema& s, StftDiscriminatorConfig& c) {
  s.option("channels", c.channels, "complex channels after the first convolution").at_least(1);
  s.option("channel_multiples", c.channel_multiples, "channels after every unit, times `channels`")
      .at_least(1);
  s.option("frequency_strides", c.frequency_strides, "stride over frequency of every unit").at_least(1);
  s.option("time_strides", c.time_strides, "stride over time of every unit").at_least(1);
  s.option("n_fft", c.n_fft, "length of the transform").at_least(2).unit("samples");
  s.option("hop", c.hop, "between two frames").at_least(1).unit("samples");
  s.option("window", c.window, "length of the window").at_least(1).unit("samples");
  s.option("window_shape", c.window_shape, "shape of the window").one_of(window_shapes());
  s.option("normalized", c.normalized, "divide the transform by sqrt(n_fft)");
  s.option("magnitude_logits", c.magnitude_logits,
           "judge the magnitude; otherwise real and imaginary part each");
}

ComplexConv2dImpl::ComplexConv2dImpl(int64_t in, int64_t out, std::array<int64_t, 2> kernel,
                                     std::array<int64_t, 2> stride, std::array<int64_t, 2> padding)
    : stride_(stride), padding_(padding) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in * kernel[0] * kernel[1]));
  weight =
      register_parameter("weight", at::empty({out, in, kernel[0], kernel[1], 2}).uniform_(-bound, bound));
  bias = register_parameter("bias", at::empty({out, 2}).uniform_(-bound, bound));
}

ComplexPair ComplexConv2dImpl::forward(const ComplexPair& x) {
  return complex_conv2d(x, weight, bias, stride_, padding_);
}

StftUnitImpl::StftUnitImpl(int64_t in, int64_t out, std::array<int64_t, 2> stride) {
  first = register_module("first", ComplexConv2d(in, in, std::array<int64_t, 2>{3, 3},
                                                 std::array<int64_t, 2>{1, 1}, std::array<int64_t, 2>{1, 1}));
  threshold = register_parameter("threshold", at::zeros({}));
  second =
      register_module("second", ComplexConv2d(in, in, std::array<int64_t, 2>{3, 3},
                                              std::array<int64_t, 2>{1, 1}, std::array<int64_t, 2>{1, 1}));
  const std::array<int64_t, 2> kernel{stride[0] + 2, stride[1] + 2};
  down = register_module(
      "down", ComplexConv2d(in, out, kernel, stride, std::array<int64_t, 2>{kernel[0] / 2, kernel[1] / 2}));
}

ComplexPair StftUnitImpl::forward(const ComplexPair& x) {
  return down->forward(second->forward(mod_relu(first->forward(x), threshold)) + x);
}

StftDiscriminatorImpl::StftDiscriminatorImpl(const StftDiscriminatorConfig& config) : config_(config) {
  const size_t count = config.channel_multiples.size();
  require(config.frequency_strides.size() >= count && config.time_strides.size() >= count,
          "[stft discriminator] {} units need as many frequency_strides ({}) and time_strides ({})", count,
          config.frequency_strides.size(), config.time_strides.size());
  input = register_module("input", ComplexConv2d(1, config.channels, std::array<int64_t, 2>{7, 7},
                                                 std::array<int64_t, 2>{1, 1}, std::array<int64_t, 2>{3, 3}));
  int64_t channels = config.channels;
  for (size_t i = 0; i < count; ++i) {
    const int64_t wider = config.channels * config.channel_multiples[i];
    units->push_back(StftUnit(channels, wider,
                              std::array<int64_t, 2>{config.frequency_strides[i], config.time_strides[i]}));
    channels = wider;
  }
  register_module("units", units);
  output = register_module("output", ComplexConv2d(channels, 1, std::array<int64_t, 2>{kOutputHeight, 1}));
}

Judgement StftDiscriminatorImpl::forward(const at::Tensor& wave) {
  StftConfig transform;
  transform.n_fft = config_.n_fft;
  transform.hop = config_.hop;
  transform.window = config_.window;
  transform.window_shape = config_.window_shape;
  at::Tensor spectrum = stft(wave, transform).unsqueeze(1);  // [batch, 1, bins, frames]
  if (config_.normalized) spectrum = spectrum / std::sqrt(static_cast<double>(config_.n_fft));

  Judgement judgement;
  ComplexPair x = input->forward({at::real(spectrum).contiguous(), at::imag(spectrum).contiguous()});
  judgement.complex_features.push_back(x);
  for (const auto& unit : *units) {
    x = unit->as<StftUnitImpl>()->forward(x);
    judgement.complex_features.push_back(x);
  }
  const ComplexPair z = output->forward(x);  // [batch, 1, height, width]
  const at::Tensor re = z.re.to(at::kFloat), im = z.im.to(at::kFloat);
  judgement.logits =
      config_.magnitude_logits ? at::sqrt(re.square() + im.square() + 1e-30) : at::stack({re, im}, -1);
  return judgement;
}

}  // namespace melete
