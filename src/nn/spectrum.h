// Short-time Fourier transforms and mel spectrograms, as torch.stft and torchaudio compute them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace melete {

struct StftConfig {
  int64_t n_fft = 1024;
  int64_t hop = 256;      // samples
  int64_t window = 1024;  // samples, centred in the n_fft frame
  std::string window_shape = "hann";
};

const std::vector<std::string>& window_shapes();  // hann, hamming, blackman, bartlett, kaiser, rectangular
// Periodic, as torch.hann_window and its kin make them. [length]
at::Tensor window_of(const std::string& shape, int64_t length, const at::TensorOptions& options = at::kFloat);

// Frames centred on multiples of the hop, the ends mirrored. x [rows, samples] -> complex [rows, n_fft / 2 +
// 1, frames]
at::Tensor stft(const at::Tensor& x, const StftConfig& config);
enum class StftEnds { mirrored, cut };  // cut: only frames that lie inside the signal
at::Tensor stft(const at::Tensor& x, const StftConfig& config, StftEnds ends);

// Triangular HTK mel filters from 0 Hz to the highest, which is half the rate. [n_fft / 2 + 1, mels]
at::Tensor mel_filters(int64_t n_fft, int64_t mels, int64_t sample_rate_hz);
at::Tensor mel_filters(int64_t n_fft, int64_t mels, int64_t sample_rate_hz, double high_hz);

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
