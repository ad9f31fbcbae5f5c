// Windows of every shape, against LibTorch's own short-time Fourier transform.
#include "nn/spectrum.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "core/base/error.h"
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

}  // namespace spectrum_test
}  // namespace melete
