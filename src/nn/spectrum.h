// Short-time Fourier transforms and mel spectrograms, as torch.stft and torchaudio compute them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

struct StftConfig {
  int64_t n_fft = 1024;
  int64_t hop = 256;      // samples
  int64_t window = 1024;  // samples, Hann, centred in the n_fft frame
};

// Frames centred on multiples of the hop, the ends mirrored. x [rows, samples] -> complex [rows, n_fft / 2 +
// 1, frames]
at::Tensor stft(const at::Tensor& x, const StftConfig& config);

// The same of rows that have their edges already: frames that begin at multiples of the hop. rows [rows,
// samples] float32
at::Tensor stft_without_edges(const at::Tensor& rows, const StftConfig& config);

// Triangular HTK mel filters. [n_fft / 2 + 1, mels]
at::Tensor mel_filters(int64_t n_fft, int64_t mels, int64_t sample_rate_hz);

class MelSpectrogram {
 public:
  // normalized: divide by the energy of the window
  MelSpectrogram(const StftConfig& config, int64_t mels, int64_t sample_rate_hz, bool normalized = false);
  at::Tensor operator()(const at::Tensor& x) const;  // power: [rows, samples] -> [rows, mels, frames]

 private:
  StftConfig config_;
  at::Tensor filters_;  // [n_fft / 2 + 1, mels]
  double scale_;
};

}  // namespace melete
