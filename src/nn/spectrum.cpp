#include "nn/spectrum.h"

#include <fmt/ranges.h>
#include <torch/fft.h>
#include <torch/nn/functional.h>

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "core/device.h"

namespace melete {

namespace {

using MakeWindow = at::Tensor (*)(int64_t, at::TensorOptions);

const std::vector<std::pair<std::string, MakeWindow>>& window_makers() {
  static const std::vector<std::pair<std::string, MakeWindow>> makers = {
      {"hann", [](int64_t n, at::TensorOptions o) { return at::hann_window(n, o); }},
      {"hamming", [](int64_t n, at::TensorOptions o) { return at::hamming_window(n, o); }},
      {"blackman", [](int64_t n, at::TensorOptions o) { return at::blackman_window(n, o); }},
      {"bartlett", [](int64_t n, at::TensorOptions o) { return at::bartlett_window(n, o); }},
      {"kaiser", [](int64_t n, at::TensorOptions o) { return at::kaiser_window(n, o); }},
      {"rectangular", [](int64_t n, at::TensorOptions o) { return at::ones({n}, o); }},
  };
  return makers;
}

}  // namespace

const std::vector<std::string>& window_shapes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, make] : window_makers()) all.push_back(name);
    return all;
  }();
  return names;
}

at::Tensor window_of(const std::string& shape, int64_t length, const at::TensorOptions& options) {
  for (const auto& [name, make] : window_makers())
    if (name == shape) return make(length, options);
  fail("[window] expected one of {}, got {}", fmt::join(window_shapes(), ", "), shape);
}

at::Tensor stft(const at::Tensor& x, const StftConfig& config) {
  return stft(x, config, StftEnds::mirrored);
}

at::Tensor stft(const at::Tensor& x, const StftConfig& config, StftEnds ends) {
  namespace F = torch::nn::functional;
  const int64_t edge = ends == StftEnds::mirrored ? config.n_fft / 2 : 0;
  const int64_t shortest = ends == StftEnds::mirrored ? edge + 1 : config.n_fft;
  require(x.size(-1) >= shortest,
          "[stft] needs at least {} samples for n_fft {}, got {}; use longer segments", shortest,
          config.n_fft, x.size(-1));
  const at::Tensor signal = x.to(at::kFloat);
  at::Tensor padded = signal;
  if (edge > 0)
    padded = F::pad(signal.unsqueeze(1), F::PadFuncOptions({edge, edge}).mode(torch::kReflect)).squeeze(1);
  at::Tensor window = window_of(config.window_shape, config.window, signal.options().requires_grad(false));
  const int64_t slack = config.n_fft - config.window;
  if (slack > 0) window = at::constant_pad_nd(window, {slack / 2, slack - slack / 2});
  const at::Tensor frames = padded.unfold(-1, config.n_fft, config.hop) * window;  // [rows, frames, n_fft]
  return torch::fft::rfft(frames).transpose(-2, -1);
}

at::Tensor mel_filters(int64_t n_fft, int64_t mels, int64_t sample_rate_hz) {
  return mel_filters(n_fft, mels, sample_rate_hz, static_cast<double>(sample_rate_hz / 2));
}

at::Tensor mel_filters(int64_t n_fft, int64_t mels, int64_t sample_rate_hz, double high_hz) {
  const double top_hz = static_cast<double>(sample_rate_hz / 2);
  const double top_mel = 2595.0 * std::log10(1.0 + high_hz / 700.0);
  // In float32, step by step as torchaudio does: near-empty bands are sensitive to rounding.
  const at::Tensor bins_hz = at::linspace(0, top_hz, n_fft / 2 + 1);
  const at::Tensor edges_hz = 700.0 * (at::pow(10.0, at::linspace(0, top_mel, mels + 2) / 2595.0) - 1.0);
  const at::Tensor widths = edges_hz.narrow(0, 1, mels + 1) - edges_hz.narrow(0, 0, mels + 1);
  const at::Tensor slopes = edges_hz.unsqueeze(0) - bins_hz.unsqueeze(1);  // [bins, mels + 2]
  const at::Tensor falling = -slopes.narrow(1, 0, mels) / widths.narrow(0, 0, mels);
  const at::Tensor rising = slopes.narrow(1, 2, mels) / widths.narrow(0, 1, mels);
  return at::clamp_min(at::minimum(falling, rising), 0);
}

MelSpectrogram::MelSpectrogram(const StftConfig& config, int64_t mels, int64_t sample_rate_hz,
                               bool normalized)
    : config_(config), filters_(mel_filters(config.n_fft, mels, sample_rate_hz)), scale_(1) {
  if (normalized) scale_ = 1.0 / window_of(config.window_shape, config.window).square().sum().item<double>();
}

at::Tensor MelSpectrogram::operator()(const at::Tensor& x) const {
  const at::Tensor power = at::view_as_real(stft(x, config_)).square().sum(-1);  // [rows, bins, frames]
  const AutocastScope float32(x.device().type(), false);  // energies are compared, in losses and figures
  const at::Tensor mel = at::matmul(power.transpose(1, 2), sent_to(x.device(), filters_)).transpose(1, 2);
  return scale_ == 1 ? mel : mel * scale_;
}

}  // namespace melete
