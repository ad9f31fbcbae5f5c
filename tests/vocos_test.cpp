// Spectra back to sound, mel frames, and Vocos.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "data/base/synth_speech.h"
#include "every_recipe.h"
#include "gradient_check.h"
#include "losses/intelligibility.h"
#include "nn/mel_frames.h"
#include "pretrained/import.h"
#include "pretrained/vocos.h"
#include "pretrained/vocos_features.h"
#include "pretrained/vocos_names.h"
#include "roles/open.h"
#include "systems/vocos/griffin_lim.h"
#include "systems/vocos/load.h"

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

// Mean distance of logarithms where there is sound: within 60 dB of the loudest band.
double apart_where_loud(const at::Tensor& real, const at::Tensor& fake) {
  const at::Tensor loud = real > real.max() - 6.9;
  return (real - fake).abs().masked_select(loud).mean().item<double>();
}

TEST(GriffinLim, BandsOfASteadyToneComeBack) {
  MelFramesConfig config;
  config.rate_hz = 16000;
  config.mels = 80;
  for (const char* edges : {"centre", "same"}) {
    config.edges = edges;
    const MelGriffinLim features(config);
    const at::Tensor times = at::arange(16384, at::kFloat) / 16000;
    at::Tensor tone = at::zeros({1, 16384});
    for (int64_t k = 1; k <= 20; ++k)
      tone = tone + (0.2 / static_cast<double>(k)) * (2 * M_PI * 180 * static_cast<double>(k) * times).sin();
    const at::Tensor frames = features.encode(tone), copy = features.decode(frames);
    EXPECT_EQ(copy.size(1), edges == std::string("same") ? 16384 : 16384 / 256 * 256);
    EXPECT_LT(apart_where_loud(frames, features.encode(copy)), 0.25) << edges;
    // As loud as it was.
    EXPECT_NEAR((copy.square().mean() / tone.square().mean()).item<double>(), 1, 0.2) << edges;
    EXPECT_TRUE(features.decode(frames).equal(copy));  // the same every time
    EXPECT_TRUE(features.decode(at::cat({frames, frames}))[1].equal(copy[0]));
  }
}

TEST(GriffinLim, SpeechIsUnderstoodAfterwards) {
  if (!espeak_installed()) GTEST_SKIP() << "espeak-ng is not installed";
  MelFramesConfig config;
  config.rate_hz = 16000;
  config.mels = 80;
  config.edges = "same";
  config.floor = 1e-3;
  const MelGriffinLim features(config);
  for (int64_t index = 0; index < 3; ++index) {
    const std::vector<float> samples = speak(make_utterance(1, index), 16000);
    const at::Tensor wave = at::tensor(samples).unsqueeze(0);
    const at::Tensor frames = features.encode(wave), copy = features.decode(frames);
    const double apart = apart_where_loud(frames, features.encode(copy));
    const auto heard = intelligibility(wave[0].narrow(0, 0, copy.size(1)), copy[0], 16000);
    ASSERT_TRUE(heard.has_value());
    std::printf("mel %.3f, STOI %.3f, ESTOI %.3f\n", apart, heard->stoi, heard->extended);
    EXPECT_LT(apart, 0.25);
    EXPECT_GT(heard->stoi, 0.9);
    EXPECT_GT(heard->extended, 0.85);
  }
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

// Beside the spectral distances, as the codec's validation has it; none where all is silent.
TEST(VocosTest, ValidationSaysHowMuchIsUnderstood) {
  const auto recipe = make_recipe("vocos");
  Schema schema = recipe->schema();
  schema.apply_file(MELETE_SOURCE_DIR "/recipes/vocos/vocos_tiny.toml");
  recipe->settle();
  const auto task = recipe->make_task();
  const auto named = [&](const at::Tensor& wave) {
    Batch batch;
    batch.set("wave", wave);
    const at::NoGradGuard no_grad;
    std::map<std::string, double> values;
    for (const auto& [name, value] : task->validate(batch, {}).named) values[name] = value.item<double>();
    return values;
  };
  const auto heard = named(0.1 * noise({2, 16384}, 1));
  ASSERT_EQ(heard.count("extended_stoi"), 1u);
  EXPECT_GT(heard.at("mel_distance"), 0);
  EXPECT_LT(std::abs(heard.at("extended_stoi")), 0.5) << "it has learned nothing";
  EXPECT_EQ(named(at::zeros({2, 16384})).count("extended_stoi"), 0u);
}

// As the package would save it.
TensorMap published(Vocos& model) {
  const VocosConfig& config = model->config();
  TensorMap theirs;
  const auto add = [&](const std::string& ours, at::Tensor value) {
    // The last norm has no table there, nor have others where there are no bandwidths.
    if (ours.starts_with("final_norm") || (config.bandwidths == 0 && ours.find("norm.") != std::string::npos))
      value = value[0];
    theirs[foreign_vocos::names(ours, config).front()] = value.detach().clone();
  };
  for (const auto& item : model->named_parameters()) add(item.key(), item.value());
  for (const auto& item : model->named_buffers()) add(item.key(), item.value());
  theirs["head.istft.window"] = at::hann_window(config.n_fft);
  return theirs;
}

TEST(VocosTest, ImportedByACommandItMakesFramesAudible) {
  testing::TemporaryFolder folder;
  const std::string file = folder / "public.safetensors", stored = folder / "vocos.safetensors";
  Vocos model(small_config());
  model->eval();
  write_tensors(file, published(model));
  ASSERT_EQ(run_program({"import", "vocos", file, "-o", stored}), 0);
  const at::NoGradGuard no_grad;
  const at::Tensor frames = noise({1, 6, 12}, 1);
  const auto features = open_audio_features(stored);
  EXPECT_EQ(features->dim(), 12);
  EXPECT_TRUE(features->decode(frames).equal(model->forward(frames)));
  // And as the vocoder of frames that are given by their settings.
  MelFramesConfig mel;
  mel.mels = 12;
  mel.n_fft = mel.window = 64;
  mel.hop = 16;
  EXPECT_TRUE(open_mel_features(mel, stored)->decode(frames).equal(model->forward(frames)));

  // The one on EnCodec's frames comes with its codec.
  const std::string encodec =
      MELETE_SOURCE_DIR "/tests/golden/audiolm/encodec_small_24khz/weights.safetensors";
  const EncodecCodec codec(import_encodec(encodec, 1.5));
  VocosConfig config = small_config();
  config.input_dim = codec.model()->config().dim;
  config.hop = codec.samples_per_frame();
  config.n_fft = 4 * config.hop;
  config.bandwidths = 4;
  config.edges = "same";
  config.codebook_rows = codec.quantizers() * codec.codebook_size();
  Vocos other(config);
  other->eval();
  write_tensors(file, published(other));
  EXPECT_EQ(run_program({"import", "vocos", file, "-o", stored}), 2) << "without its codec";
  ASSERT_EQ(run_program({"import", "vocos", file, "--encodec", encodec, "--bandwidth", "1.5", "-o", stored}),
            0);
  const auto latents = open_audio_features(stored);
  EXPECT_EQ(latents->kind(), "encodec");
  const at::Tensor wave = 0.1 * noise({1, 40 * config.hop}, 2);
  const EncodecVocos expected(import_encodec(encodec, 1.5), other, 0);
  EXPECT_TRUE(latents->encode(wave).equal(expected.encode(wave)));
  EXPECT_TRUE(latents->decode(latents->encode(wave)).equal(expected.decode(expected.encode(wave))));
}

TEST(VocosTest, PublicNamesLoad) {
  VocosConfig config = small_config();
  config.bandwidths = 4;
  config.codebook_rows = 30;
  config.edges = "same";
  Vocos model(config);
  TensorMap theirs = published(model);
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
