// Spectra back to sound, mel frames, and Vocos.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "core/base/error.h"
#include "gradient_check.h"
#include "nn/mel_frames.h"
#include "pretrained/vocos.h"
#include "pretrained/vocos_features.h"
#include "pretrained/vocos_names.h"

namespace melete {

namespace vocos_test {

VocosConfig small_config() {
  VocosConfig config;
  config.input_dim = 12;
  config.dim = 16;
  config.inner_dim = 24;
  config.layers = 2;
  config.n_fft = 64;
  config.hop = 16;
  return config;
}

TEST(Spectrum, InverseGivesTheSoundBack) {
  const at::Tensor audio = noise({2, 1600}, 1);
  for (const int64_t window : {64, 48}) {
    const StftConfig config{64, 16, window};
    expect_close(inverse_stft(stft(audio, config), config), audio, 1e-4);
  }
  // Frames side by side: the ends are whole as well.
  const StftConfig config{64, 16, 64};
  const int64_t both[] = {24, 24};
  const at::Tensor frames = stft(at::reflection_pad1d(audio, both), config, StftEnds::cut);
  EXPECT_EQ(frames.size(2), 100);
  expect_close(inverse_stft(frames, config, FrameEdges::same), audio, 1e-4);
}

TEST(MelFramesTest, AsManyFramesAsItSays) {
  for (const char* edges : {"centre", "same"}) {
    MelFramesConfig config;
    config.edges = edges;
    const MelFrames mel(config);
    for (const int64_t samples : {2048, 5000, 8191}) {
      const at::Tensor frames = mel(noise({2, samples}, 1));
      EXPECT_EQ(frames.size(1), mel.frames(samples)) << edges;
      EXPECT_EQ(frames.size(2), config.mels);
    }
  }
  MelFramesConfig config;
  config.high_hz = 13000;
  EXPECT_THROW(MelFrames{config}, Error);
}

TEST(VocosTest, MakesSoundOfTheRightLengthAndLearns) {
  VocosConfig config = small_config();
  Vocos model(config);
  const at::Tensor frames = noise({2, 9, 12}, 1);
  EXPECT_EQ(model->forward(frames).size(1), 8 * 16);
  config.edges = "same";
  config.bandwidths = 3;
  Vocos other(config);
  EXPECT_EQ(other->forward(frames, 2).size(1), 9 * 16);
  EXPECT_THROW(other->forward(frames, 3), Error);
  other->forward(frames, 1).square().mean().backward();
  for (const auto& item : other->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(VocosTest, PublicNamesLoad) {
  VocosConfig config = small_config();
  config.bandwidths = 4;
  config.codebook_rows = 30;
  config.edges = "same";
  Vocos model(config);
  TensorMap theirs;
  const auto add = [&](const std::string& ours, at::Tensor value) {
    // The last norm has no table there.
    if (ours.starts_with("final_norm")) value = value[0];
    theirs[foreign_vocos::names(ours, config).front()] = value.detach();
  };
  for (const auto& item : model->named_parameters()) add(item.key(), item.value());
  for (const auto& item : model->named_buffers()) add(item.key(), item.value());
  theirs["head.istft.window"] = at::hann_window(64);
  Vocos again = foreign_vocos::load(foreign_vocos::from_weights(theirs, "test"), theirs, "test");
  const at::Tensor frames = noise({1, 6, 12}, 1);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(again->forward(frames, 1).equal(model->forward(frames, 1)));
  theirs.erase("head.out.bias");
  EXPECT_THROW(foreign_vocos::load(config, theirs, "test"), Error);
}

TEST(VocosTest, FeaturesAreWhatTheVocoderWasMadeFor) {
  MelFramesConfig mel;
  mel.mels = 12;
  mel.n_fft = mel.window = 64;
  mel.hop = 16;
  mel.rate_hz = 8000;
  const MelVocos features(mel, Vocos(small_config()));
  const at::Tensor audio = noise({2, 800}, 1);
  const at::Tensor frames = features.encode(audio);
  EXPECT_EQ(frames.size(1), features.frames(800));
  EXPECT_EQ(features.decode(frames).size(1), 800);
  EXPECT_EQ(features.frames_per_second(), 500);
  mel.hop = 32;
  EXPECT_THROW(MelVocos(mel, Vocos(small_config())), Error);
}

}  // namespace vocos_test
}  // namespace melete
