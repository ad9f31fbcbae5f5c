// A sound that is still going on: however it is cut into chunks, codes and samples are those of the whole.
#include "systems/soundstream/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <sstream>

#include "base/temporary_folder.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/token_stream.h"
#include "nn/lapped.h"
#include "roles/codec_stream.h"
#include "small_codec.h"
#include "systems/soundstream/codec.h"
#include "systems/soundstream/load.h"
#include "systems/soundstream/pieces.h"

namespace melete {
namespace live_codec_test {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

std::vector<float> noise(int64_t samples, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> wave(static_cast<size_t>(samples));
  float held = 0;
  for (float& sample : wave) sample = held = 0.9f * held + 0.1f * static_cast<float>(rng.uniform(-3, 3));
  return wave;
}

// What makes a codec one of tones.
ordered_json of_tones() {
  return {{"attention", false}, {"pad_mode", "constant"}, {"front", "tones"}, {"front_hop", 10},
          {"strides", {2, 1}},  {"lowest_note", 60},      {"tones", 24},      {"noise_bands", 4}};
}

SoundStream codec_with(const ordered_json& changes) {
  auto settings = testing::small_codec_settings();
  settings["model"]["codec"].merge_patch(changes);
  testing::TemporaryFolder folder;
  save_checkpoint(folder / "c.safetensors", testing::small_codec_checkpoint(3, settings));
  return load_codec(folder / "c.safetensors").model;
}

// Every kind of quantizer, of padding, of attention's windows, and of layers that remember.
const std::vector<std::pair<std::string, ordered_json>>& kinds() {
  static const std::vector<std::pair<std::string, ordered_json>> all = {
      {"plain", {{"attention", false}}},
      {"zeros before", {{"attention", false}, {"pad_mode", "constant"}}},
      {"repeated before", {{"attention", false}, {"pad_mode", "replicate"}}},
      {"attention", {{"pad_mode", "constant"}}},
      {"short windows", {{"pad_mode", "constant"}, {"attention_window", 3}, {"attention_depth", 3}}},
      {"long windows", {{"attention_window", 50}, {"attention_depth", 1}, {"attention_position_bias", true}}},
      {"lfq",
       {{"attention", false},
        {"pad_mode", "constant"},
        {"quantizer", {{"kind", "lfq"}, {"codebook_size", 16}}}}},
      {"fsq",
       {{"attention", false},
        {"pad_mode", "constant"},
        {"quantizer", {{"kind", "fsq"}, {"levels", {5, 3}}}}}},
      {"groups", {{"attention", false}, {"pad_mode", "constant"}, {"quantizer", {{"groups", 2}}}}},
      {"gates",
       {{"attention", false}, {"pad_mode", "constant"}, {"gate_loop", true}, {"squeeze_excite", true}}},
      {"wide", {{"attention", false}, {"pad_mode", "constant"}, {"channels", 16}}},  // kernels of our own
      {"lapped", {{"pad_mode", "constant"}, {"front", "lapped"}, {"front_hop", 6}, {"strides", {1, 2}}}},
      {"lapped, mirrored",
       {{"attention", false}, {"front", "lapped"}, {"front_hop", 8}, {"strides", {1, 1}}}},
      {"lapped, signs drawn",
       {{"attention", false},
        {"pad_mode", "constant"},
        {"front", "lapped"},
        {"front_hop", 6},
        {"strides", {1, 2}},
        {"noise_from_hz", 1400}}},
      {"tones", of_tones()},
  };
  return all;
}

at::Tensor whole_codes(SoundStream codec, std::vector<float> wave) {
  PieceLayout layout = piece_layout(codec->config(), 1000);
  layout.piece_frames = 0;  // in one piece
  PieceEncoder encoder(codec, layout);
  encoder.push(wave);
  return encoder.finish();
}

TEST(LiveCodec, AnyChunkingGivesTheCodesAndTheSoundOfTheWhole) {
  for (const auto& [name, changes] : kinds()) {
    SoundStream codec = codec_with(changes);
    for (const int64_t samples : {1600, 1603, 9}) {
      const std::vector<float> wave = noise(samples, static_cast<uint64_t>(samples));
      const at::Tensor whole = whole_codes(codec, wave);
      const at::Tensor sound = codec->decode_codes(whole.transpose(0, 1).unsqueeze(1)).flatten();
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        Rng rng(seed);
        LiveEncoder encoder(codec);
        std::vector<at::Tensor> parts;
        for (size_t at = 0; at < wave.size();) {
          const int64_t most = seed == 1 ? 20 : 700;  // samples by the handful, or many frames at once
          const size_t size = std::min<size_t>(static_cast<size_t>(rng.integer(0, most)), wave.size() - at);
          parts.push_back(encoder.push(std::span(wave).subspan(at, size)));
          at += size;
        }
        parts.push_back(encoder.finish());
        const at::Tensor codes = at::cat(parts);
        ASSERT_EQ(codes.sizes(), whole.sizes()) << name;
        EXPECT_TRUE(at::equal(codes, whole)) << name << ", " << samples << " samples, chunking " << seed;

        LiveDecoder decoder(codec);
        std::vector<float> made;
        for (int64_t at = 0; at < whole.size(0);) {
          const int64_t size = std::min(rng.integer(1, seed == 1 ? 2 : 60), whole.size(0) - at);
          const auto some = decoder.push(whole.narrow(0, at, size));
          made.insert(made.end(), some.begin(), some.end());
          at += size;
        }
        const auto rest = decoder.finish();
        made.insert(made.end(), rest.begin(), rest.end());
        ASSERT_EQ(static_cast<int64_t>(made.size()), sound.numel()) << name;
        EXPECT_LT((at::tensor(made) - sound).abs().max().item<double>(), 1e-5)
            << name << ", chunking " << seed;
      }
    }
  }
}

TEST(LiveCodec, ASoundThatIsACircleIsNotLive) {
  const SoundStreamCodec codec(codec_with({{"attention", false}, {"pad_mode", "circular"}}));
  EXPECT_THROW(codec.live_sound_to_codes(), Error);
  EXPECT_THROW(codec.live_codes_to_sound(), Error);
  EXPECT_FALSE(codec.bounded()) << "and never in pieces";
}

// A codec that forgot between chunks would fail above: what comes does depend on what was.
TEST(LiveCodec, ThePastMatters) {
  SoundStream codec = codec_with({{"attention", false}, {"pad_mode", "constant"}});
  const std::vector<float> wave = noise(4000, 4);
  const at::Tensor whole = whole_codes(codec, wave);
  LiveEncoder late(codec);
  const at::Tensor second_half = at::cat({late.push(std::span(wave).subspan(2000)), late.finish()});
  EXPECT_FALSE(at::equal(second_half.narrow(0, 0, 20), whole.narrow(0, 250, 20)));
}

TEST(LiveCodec, CodesComeNoLaterThanItsDelaySays) {
  for (const auto& [name, changes] : kinds()) {
    const SoundStreamCodec codec(codec_with(changes));
    const Codec::LiveDelay delay = codec.live_delay();
    const auto encoder = codec.live_sound_to_codes();
    const std::vector<float> wave = noise(delay.first_samples + 50 * codec.samples_per_frame(), 5);
    int64_t frames = 0;
    for (int64_t at = 0; at < static_cast<int64_t>(wave.size()); ++at) {
      frames += encoder->push(std::span(wave).subspan(static_cast<size_t>(at), 1)).size(0);
      const int64_t came = at + 1;
      if (came < delay.first_samples) {
        EXPECT_EQ(frames, 0) << name;
      }
      if (came >= delay.first_samples) {
        ASSERT_EQ(frames, (came - delay.samples) / codec.samples_per_frame() + 1)
            << name << " at sample " << at;
      }
    }
  }
}

std::string as_bytes(const std::vector<float>& wave) {
  std::string bytes;
  for (const float sample : wave) {
    const auto value = static_cast<uint16_t>(static_cast<int16_t>(std::lround(sample * 20000)));
    bytes += static_cast<char>(value & 0xff);
    bytes += static_cast<char>(value >> 8);
  }
  return bytes;
}

TEST(CodecStream, FromSamplesToTokensAndBack) {
  const SoundStreamCodec codec(codec_with({{"attention", false}, {"pad_mode", "constant"}}));
  const std::string pcm = as_bytes(noise(3000, 6));
  std::string tokens, sound;
  for (const int64_t chunk_frames : {1, 7}) {
    CodecStreamConfig config;
    config.name = "small";
    config.chunk_frames = chunk_frames;
    std::istringstream in(pcm);
    std::ostringstream out;
    EXPECT_EQ(encode_stream(codec, in, out, config), 3000);
    if (!tokens.empty()) {
      EXPECT_EQ(out.str(), tokens);
    }
    tokens = out.str();
    std::istringstream back(tokens);
    std::ostringstream heard;
    EXPECT_EQ(decode_stream(codec, back, heard, config), 3000);
    if (!sound.empty()) {
      EXPECT_EQ(heard.str().size(), sound.size());
    }
    sound = heard.str();
  }
  EXPECT_EQ(tokens.size(), kTokenHeaderBytes + 375 * 3);  // 375 frames of 4 x 6 bits
}

TEST(CodecStream, WhatIsNotAStreamIsRefusedByName) {
  const SoundStreamCodec codec(codec_with({{"attention", false}, {"pad_mode", "constant"}}));
  const auto message = [&](const std::string& bytes) -> std::string {
    std::istringstream in(bytes);
    std::ostringstream out;
    try {
      decode_stream(codec, in, out, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::istringstream in(as_bytes(noise(800, 7)));
  std::ostringstream out;
  encode_stream(codec, in, out, {});
  const std::string good = out.str();
  EXPECT_EQ(message(good), "");
  EXPECT_THAT(message(""), HasSubstr("not a token stream"));
  EXPECT_THAT(message("MELTOKEN" + good.substr(8)), HasSubstr("not a token stream"));
  EXPECT_THAT(message(good.substr(0, 60)), HasSubstr("truncated"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("ends within a frame"));
  std::string damaged = good;
  damaged[kTokenHeaderBytes] = '\x3f';  // code 63 of 37
  EXPECT_THAT(message(damaged), HasSubstr("damaged"));
  std::string other = good;
  other[20] = static_cast<char>(other[20] + 1);
  EXPECT_THAT(message(other), HasSubstr("another model"));
  std::istringstream odd("abc");
  EXPECT_THROW(encode_stream(codec, odd, out, {}), Error);
}

TEST(LappedTransform, GivesTheWaveBack) {
  for (const int64_t hop : {2, 6, 160}) {
    const LappedTransform transform(hop);
    torch::manual_seed(8);
    const at::Tensor wave = at::randn({2, 9 * hop});
    const auto frames = transform.analyse(wave);  // 8 frames
    ASSERT_EQ(frames.cosines.size(1), 8);
    const at::Tensor back = transform.synthesise(frames.cosines);
    EXPECT_TRUE(at::allclose(back.narrow(1, hop, 7 * hop), wave.narrow(1, hop, 7 * hop), 1e-4, 1e-5));
    // Chunk by chunk as well
    at::Tensor half;
    const at::Tensor first = transform.synthesise(frames.cosines.narrow(1, 0, 3), &half);
    const at::Tensor second = transform.synthesise(frames.cosines.narrow(1, 3, 5), &half);
    EXPECT_TRUE(at::allclose(at::cat({first, second}, 1), back, 1e-5, 1e-6));
  }
  const at::Tensor x = at::linspace(-2, 2, 401, at::kDouble);
  EXPECT_TRUE(at::allclose(expand(compress(x)), x, 1e-9, 1e-12));
}

// What the linear way around the layers is for: a codec that was never trained is a transform codec already.
TEST(LappedFront, UntrainedCodecPassesLowFrequencies) {
  SoundStreamConfig config;
  config.front = "lapped";
  config.front_hop = 32;
  config.strides = {1};
  config.channel_multiples = {1};
  config.channels = 16;
  config.dim = 32;
  config.attention = false;
  config.pad_mode = "constant";
  torch::manual_seed(9);
  SoundStream codec(config);
  const at::NoGradGuard no_grad;
  codec->eval();
  const at::Tensor time = at::arange(32 * 50, at::kFloat);
  const at::Tensor wave = (0.3 * at::sin(0.1 * time)).view({1, 1, -1});
  const at::Tensor heard = codec->decode(codec->encode(wave));
  const double error = (heard - wave).narrow(2, 64, 1400).square().mean().item<double>();
  EXPECT_LT(error, 0.1 * wave.square().mean().item<double>());
}

// Vectors that stay give a sound that is steady below noise_from_hz and never the same twice above it.
TEST(LappedFront, DrawnSignsMakeNoTone) {
  SoundStream codec = codec_with({{"attention", false},
                                  {"pad_mode", "constant"},
                                  {"front", "lapped"},
                                  {"front_hop", 16},
                                  {"strides", {1, 1}},
                                  {"noise_from_hz", 2000}});
  ASSERT_EQ(codec->config().signed_coefficients(), 8);
  const at::NoGradGuard no_grad;
  const int64_t frames = 200, settled = 100;
  const at::Tensor wave = codec->decode(at::ones({1, frames, 12})).flatten();
  const auto found =
      LappedTransform(16).analyse(wave.unsqueeze(0)).cosines[0].narrow(0, settled, 60);  // [60, 16]
  const at::Tensor mean = found.mean(0).abs(), size = found.abs().mean(0);
  const at::Tensor steady = mean / size;
  EXPECT_GT(steady.narrow(0, 0, 6).min().item<double>(), 0.9);  // what lies beside the border hears both
  EXPECT_LT(steady.narrow(0, 10, 6).max().item<double>(), 0.5);
}

TEST(LappedFront, LooksAheadOneHopAndNoFurther) {
  SoundStreamConfig config =
      codec_with({{"front", "lapped"}, {"front_hop", 6}, {"strides", {1, 2}}})->config();
  torch::manual_seed(10);
  SoundStream codec(config);
  codec->eval();
  const at::NoGradGuard no_grad;
  const int64_t frame = codec->samples_per_frame();
  ASSERT_EQ(frame, 12);
  const at::Tensor wave = at::randn({1, 1, 60 * frame});
  at::Tensor changed = wave.clone();
  changed.narrow(2, 40 * frame, 20 * frame).add_(1);
  const at::Tensor a = codec->encode(wave), b = codec->encode(changed);
  EXPECT_TRUE(at::equal(a.narrow(1, 0, 39), b.narrow(1, 0, 39)));
  EXPECT_FALSE(at::equal(a.narrow(1, 39, 1), b.narrow(1, 39, 1)));
}

// A codec that was never trained says which notes it hears, at about their levels.
TEST(ToneFront, UntrainedCodecPlaysTheNotesItHears) {
  SoundStreamConfig config;
  config.front = "tones";
  config.strides = {4};
  config.channel_multiples = {1};
  config.channels = 16;
  config.dim = config.tones + config.noise_bands;
  config.attention = false;
  config.pad_mode = "constant";
  torch::manual_seed(9);
  SoundStream codec(config);
  const at::NoGradGuard no_grad;
  codec->eval();
  ASSERT_EQ(codec->samples_per_frame(), 640);
  const at::Tensor time = at::arange(640 * 40, at::kFloat) * (2 * M_PI / 16000);
  const at::Tensor wave = 0.2 * (at::sin(440 * time) + at::sin(659.26 * time)).view({1, 1, -1});
  const at::Tensor heard = codec->decode(codec->encode(wave)).flatten(0, 1);
  const ToneBank bank(config.tone_bank());
  const at::Tensor levels =
      bank.analyse(heard.narrow(1, 640 * 10, 160 * 80)).flatten(0, 1).mean(0).narrow(0, 0, config.tones);
  const at::Tensor loudest = std::get<0>(std::get<1>(levels.topk(2)).sort());
  EXPECT_EQ(loudest[0].item<int64_t>(), 69 - config.lowest_note);
  EXPECT_EQ(loudest[1].item<int64_t>(), 76 - config.lowest_note);
  const double level = 0.2 * std::sqrt(160 / 2.0);
  EXPECT_NEAR(levels[69 - config.lowest_note].item<double>(), level, 0.5 * level);
}

TEST(ToneFront, LooksAheadAsFarAsItSays) {
  SoundStreamConfig config = codec_with(of_tones())->config();
  torch::manual_seed(10);
  SoundStream codec(config);
  codec->eval();
  const at::NoGradGuard no_grad;
  const int64_t frame = codec->samples_per_frame(), ahead = config.look_ahead() / frame;
  ASSERT_EQ(frame, 20);
  ASSERT_GT(ahead, 2);
  const at::Tensor wave = at::randn({1, 1, 300 * frame});
  at::Tensor changed = wave.clone();
  changed.narrow(2, 200 * frame, 100 * frame).add_(1);
  const at::Tensor a = codec->encode(wave), b = codec->encode(changed);
  EXPECT_TRUE(at::equal(a.narrow(1, 0, 199 - ahead), b.narrow(1, 0, 199 - ahead)));
  EXPECT_FALSE(at::equal(a.narrow(1, 199, 1), b.narrow(1, 199, 1)));
}

}  // namespace live_codec_test
}  // namespace melete
