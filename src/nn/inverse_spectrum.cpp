#include "nn/inverse_spectrum.h"

#include <torch/fft.h>

#include "core/base/error.h"
#include "core/device.h"

namespace melete {

namespace {

// frames [rows, n_fft, frames] -> [rows, (frames - 1) * hop + n_fft]
at::Tensor overlap_add(const at::Tensor& frames, int64_t hop) {
  const int64_t n_fft = frames.size(1), samples = (frames.size(2) - 1) * hop + n_fft;
  return at::col2im(frames.contiguous(), {1, samples}, {1, n_fft}, {1, 1}, {0, 0}, {1, hop})
      .view({frames.size(0), samples});
}

}  // namespace

at::Tensor inverse_stft(const at::Tensor& spectrum, const StftConfig& config, FrameEdges edges) {
  const int64_t n_fft = config.n_fft, slack = n_fft - config.window, frames = spectrum.size(2);
  require(spectrum.size(1) == n_fft / 2 + 1, "[stft] expected {} bins for n_fft {}, got {}", n_fft / 2 + 1,
          n_fft, spectrum.size(1));
  // What the windows add up to is known without the spectrum, on the host: nobody waits for a device to check
  // it.
  at::Tensor window = window_of(config.window_shape, config.window, at::kFloat);
  if (slack > 0) window = at::constant_pad_nd(window, {slack / 2, slack - slack / 2});
  const at::Tensor waves =
      torch::fft::irfft(spectrum, n_fft, 1) * sent_to(spectrum.device(), window).unsqueeze(1);
  const at::Tensor sum = overlap_add(waves, config.hop);
  const at::Tensor weight =
      overlap_add(window.square().view({1, n_fft, 1}).expand({1, n_fft, frames}), config.hop);

  const int64_t edge = edges == FrameEdges::centre ? n_fft / 2 : (n_fft - config.hop) / 2;
  const int64_t samples = edges == FrameEdges::centre ? (frames - 1) * config.hop : sum.size(1) - 2 * edge;
  require(samples > 0, "[stft] expected two frames or more, got {}", frames);
  const at::Tensor inner = weight.narrow(1, edge, samples);
  require(inner.min().item<double>() > 1e-11, "[stft] windows of {} samples leave gaps at a hop of {}",
          config.window, config.hop);
  return sum.narrow(1, edge, samples) / sent_to(sum.device(), inner);
}

}  // namespace melete
