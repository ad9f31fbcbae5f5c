// Windows of every shape, against LibTorch's own short-time Fourier transform; distances between spectra.
#include "nn/spectrum.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "core/base/error.h"
#include "gradient_check.h"
#include "losses/spectral.h"
#include "nn/stft_discriminator.h"

namespace melete {
namespace spectrum_test {

TEST(Spectrum, WindowsOfEveryShape) {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({2, 900});
  const std::vector<std::pair<std::string, at::Tensor>> windows = {
      {"hann", at::hann_window(100)},         {"hamming", at::hamming_window(100)},
      {"blackman", at::blackman_window(100)}, {"bartlett", at::bartlett_window(100)},
      {"kaiser", at::kaiser_window(100)},     {"rectangular", at::ones({100})}};
  ASSERT_EQ(windows.size(), window_shapes().size());
  for (const auto& [shape, window] : windows) {
    StftConfig config;
    config.n_fft = 128;
    config.hop = 32;
    config.window = 100;
    config.window_shape = shape;
    const at::Tensor wanted = at::stft(x, 128, 32, 100, window, /*center=*/true, "reflect",
                                       /*normalized=*/false, /*onesided=*/true, /*return_complex=*/true);
    const at::Tensor given = stft(x, config);
    EXPECT_EQ(given.sizes(), wanted.sizes());
    EXPECT_LT((given - wanted).abs().max().item<double>(), 1e-4) << shape;
  }
  EXPECT_THROW(window_of("round", 8), Error);
}

TEST(Spectrum, TheDiscriminatorHearsThroughItsWindow) {
  StftDiscriminatorConfig config;
  config.channels = 2;
  config.channel_multiples = {1};
  config.frequency_strides = config.time_strides = {2};
  config.n_fft = 64;
  config.hop = 16;
  config.window = 64;
  torch::manual_seed(2);
  StftDiscriminator hann(config);
  config.window_shape = "hamming";
  torch::manual_seed(2);
  StftDiscriminator hamming(config);
  const at::Tensor x = at::randn({1, 640});
  EXPECT_GT((hann(x).logits - hamming(x).logits).abs().max().item<double>(), 1e-4);
}

TEST(RootSpectrum, SeesPhasesWhereItIsAskedToAndQuietBands) {
  constexpr int64_t kRate = 8000;
  const auto tone = [](double hz) {
    return at::sin(2 * M_PI * hz / kRate * at::arange(4000, at::kDouble)).to(at::kFloat).unsqueeze(0);
  };
  const auto distance = [](const at::Tensor& a, const at::Tensor& b, double share, double below_hz = 0) {
    RootSpectrumLossConfig config;
    config.phase_share = share;
    config.phase_below_hz = below_hz;
    return RootSpectrumLoss(config, kRate)(a, b).item<double>();
  };
  const at::Tensor low = tone(500), high = tone(3000);
  EXPECT_LT(distance(low, low, 0.5), 1e-6);
  EXPECT_LT(distance(low, -low, 0), 1e-6);  // sizes alone: a phase is not heard
  EXPECT_GT(distance(low, -low, 1), 3);     // twice the size, squared
  EXPECT_GT(distance(low + high, low - high, 1), 1);
  EXPECT_LT(distance(low + high, low - high, 1, 2000), 0.25);
  // A band 40 dB below the other: leaving it out costs 1e-4 of the power, and far more here.
  const at::Tensor both = low + 0.01 * high;
  EXPECT_GT(distance(both, low, 0.5), 0.01);
}

// What ranks rely on: a batch's loss is the mean of its rows'. And a row of silence is no danger.
TEST(RootSpectrum, EveryRowCountsAlike) {
  const RootSpectrumLoss loss({}, 8000);
  const at::Tensor real = at::cat({noise({1, 4000}, 1), 0.01 * noise({1, 4000}, 2)}), fake = 0.8 * real;
  const double loud = loss(real.narrow(0, 0, 1), fake.narrow(0, 0, 1)).item<double>(),
               quiet = loss(real.narrow(0, 1, 1), fake.narrow(0, 1, 1)).item<double>();
  EXPECT_NEAR(loss(real, fake).item<double>(), (loud + quiet) / 2, 1e-5);
  EXPECT_GT(quiet, loud / 2);
  const at::Tensor silent = at::zeros({1, 4000});
  EXPECT_EQ(loss(silent, silent).item<double>(), 0);
  EXPECT_LT(loss(silent, 1e-3 * noise({1, 4000}, 3)).item<double>(), 1);
}

TEST(RootSpectrum, Gradient) {
  RootSpectrumLossConfig config;
  config.window_powers = {5, 6};
  config.phase_below_hz = 3000;
  const RootSpectrumLoss loss(config, 8000);
  const at::Tensor real = noise({2, 300}, 1);
  expect_gradient([&](const at::Tensor& x) { return loss(real, x); }, noise({2, 300}, 2), 3, 3e-4, 2e-2);
}

}  // namespace spectrum_test
}  // namespace melete
