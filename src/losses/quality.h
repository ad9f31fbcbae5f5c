// How close a reconstruction is, in figures that people compare codecs by.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace melete {

// All take real and fake [rows, samples] and give the mean over rows.

// Scale-invariant signal-to-distortion ratio in dB; higher is better.
at::Tensor si_sdr(const at::Tensor& real, const at::Tensor& fake);

// Mean absolute difference of 80-band log-mel spectrograms (natural logarithm, floor 1e-5); lower is better.
at::Tensor mel_distance(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz);

// The same in 40 bands with windows of 256 samples, 64 apart: sees the starts of sounds that the long window
// of mel_distance blurs.
at::Tensor fine_mel_distance(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz);

// Spectral convergence plus log-magnitude L1, averaged over three resolutions; lower is better.
at::Tensor stft_distance(const at::Tensor& real, const at::Tensor& fake);

// Log-spectral distance in dB, by band: root mean square over a band's bins of the difference in dB, mean
// over frames; both spectra floored 80 dB below the loudest point of the original. Bands end at
// band_edges_hz() and at half the rate. -> [bands]
const std::vector<double>& band_edges_hz();  // 1, 2 and 4 kHz
at::Tensor band_distances(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz);

// Steady tones that were added, in dB: how far narrow lines of the mean log spectrum stand above their
// surroundings, beyond what the original has there, mean over the hundredth of the bins where that is most.
// Nothing for sounds shorter than four windows (1 s).
std::optional<double> steady_tones(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz);

// Codes of one stage, any shape, -1 for none: exp(entropy) of their histogram, and how many of
// `codebook_size` occur as a share of how many could have.
struct CodeUse {
  at::Tensor perplexity, share;
};
CodeUse code_use(const at::Tensor& codes, int64_t codebook_size);

}  // namespace melete
