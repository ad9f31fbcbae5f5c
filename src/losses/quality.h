// How close a reconstruction is, in figures that people compare codecs by.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete {

// All take real and fake [rows, samples] and give the mean over rows.

// Scale-invariant signal-to-distortion ratio in dB; higher is better.
at::Tensor si_sdr(const at::Tensor& real, const at::Tensor& fake);

// Mean absolute difference of 80-band log-mel spectrograms (natural logarithm, floor 1e-5); lower is better.
at::Tensor mel_distance(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz);

// Spectral convergence plus log-magnitude L1, averaged over three resolutions; lower is better.
at::Tensor stft_distance(const at::Tensor& real, const at::Tensor& fake);

// Codes of one stage, any shape, -1 for none: exp(entropy) of their histogram, and how many of
// `codebook_size` occur as a share of how many could have.
struct CodeUse {
  at::Tensor perplexity, share;
};
CodeUse code_use(const at::Tensor& codes, int64_t codebook_size);

}  // namespace melete
