#include "losses/quality.h"

#include <algorithm>

#include "nn/spectrum.h"

namespace melete {

at::Tensor si_sdr(const at::Tensor& real, const at::Tensor& fake) {
  const at::Tensor target = real - real.mean(-1, true), estimate = fake - fake.mean(-1, true);
  const at::Tensor scale =
      (target * estimate).sum(-1, true) / at::clamp_min(target.square().sum(-1, true), 1e-8);
  const at::Tensor projected = scale * target;
  const at::Tensor noise = at::clamp_min((estimate - projected).square().sum(-1), 1e-8);
  return (10 * at::log10(at::clamp_min(projected.square().sum(-1), 1e-8) / noise)).mean();
}

at::Tensor mel_distance(const at::Tensor& real, const at::Tensor& fake, int64_t sample_rate_hz) {
  const MelSpectrogram mel({1024, 256, 1024}, 80, sample_rate_hz);
  const auto log_mel = [&](const at::Tensor& wave) { return at::log(at::clamp_min(mel(wave), 1e-5)); };
  return (log_mel(real) - log_mel(fake)).abs().mean();
}

at::Tensor stft_distance(const at::Tensor& real, const at::Tensor& fake) {
  at::Tensor total = at::zeros({}, real.options().dtype(at::kFloat));
  for (const int64_t n_fft : {512, 1024, 2048}) {
    const StftConfig config{n_fft, n_fft / 4, n_fft};
    const at::Tensor a = stft(real, config).abs(), b = stft(fake, config).abs();  // [rows, bins, frames]
    const at::Tensor convergence = (a - b).norm(2, {1, 2}) / at::clamp_min(a.norm(2, {1, 2}), 1e-8);
    const at::Tensor log_difference =
        (at::log(at::clamp_min(a, 1e-5)) - at::log(at::clamp_min(b, 1e-5))).abs();
    total = total + convergence.mean() + log_difference.mean();
  }
  return total / 3;
}

CodeUse code_use(const at::Tensor& codes, int64_t codebook_size) {
  const at::Tensor flat = codes.flatten();
  const at::Tensor used = flat.masked_select(flat >= 0);
  const at::Tensor counts = at::bincount(used, {}, codebook_size).to(at::kFloat);
  const at::Tensor share = counts / at::clamp_min(counts.sum(), 1);
  const at::Tensor entropy = -(share * at::log(at::clamp_min(share, 1e-10))).sum();
  const auto possible = static_cast<double>(std::max<int64_t>(1, std::min(codebook_size, used.numel())));
  return {entropy.exp(), (counts > 0).sum().to(at::kFloat) / possible};
}

}  // namespace melete
