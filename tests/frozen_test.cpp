// Frozen codecs and tokenizers behind their interfaces, k-means, and what becomes of wrong files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <fstream>
#include <set>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/autocast.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "data/base/synth_music.h"
#include "pretrained/encodec.h"
#include "pretrained/import.h"
#include "pretrained/kmeans_fit.h"
#include "pretrained/kmeans_tokenizer.h"
#include "roles/open.h"
#include "systems/soundstream/codec.h"

namespace melete {
namespace frozen_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

at::Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

Encodec small_encodec() {
  torch::manual_seed(7);
  EncodecConfig config;
  config.dim = 8;
  config.filters = 2;
  config.ratios = {4, 3, 2};
  config.residual_layers = 2;
  config.codebooks = 3;
  config.quantizers = 2;
  config.codebook_size = 16;
  return Encodec(config);
}

TEST(Encodec, RowsOfABatchStayApart) {
  const EncodecCodec codec(small_encodec());
  const at::Tensor audio = noise({3, 24 * 20 + 5}, 1) * 0.3;
  const at::Tensor codes = codec.encode(audio);
  EXPECT_EQ(codes.sizes(), (std::vector<int64_t>{3, 21, 2}));
  EXPECT_EQ(codec.frames(24 * 20 + 5), 21);
  const at::Tensor decoded = codec.decode(codes);
  EXPECT_EQ(decoded.sizes(), (std::vector<int64_t>{3, 21 * 24}));
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(codec.encode(audio.narrow(0, row, 1)).equal(codes.narrow(0, row, 1)));
    EXPECT_TRUE(at::allclose(codec.decode(codes.narrow(0, row, 1))[0], decoded[row], 1e-4, 1e-6));
  }
  EXPECT_FALSE(decoded.requires_grad());
  // Fewer quantizers are a coarser sound, not an error; too many are.
  EXPECT_EQ(codec.decode(codes.narrow(2, 0, 1)).sizes(), decoded.sizes());
  EXPECT_THAT(refusal([&] { codec.decode(at::zeros({1, 2, 4}, at::kLong)); }), HasSubstr("1 .. 3"));
}

TEST(Encodec, AudioShorterThanAnyPadding) {
  const EncodecCodec codec(small_encodec());
  for (const int64_t samples : {1, 2, 23, 24, 25, 60}) {
    const at::Tensor codes = codec.encode(noise({1, samples}, 2));
    EXPECT_EQ(codes.size(1), codec.frames(samples)) << samples;
    EXPECT_TRUE(at::isfinite(codec.decode(codes)).all().item<bool>());
  }
}

// The fast path (the project's causal convolutions) against LibTorch's, and the other style of the paper.
TEST(Encodec, OtherStylesKeepLengths) {
  torch::manual_seed(9);
  EncodecConfig config = small_encodec()->config();
  for (const bool causal : {true, false})
    for (const bool group_norm : {true, false})
      for (const double trim : {1.0, 0.5}) {
        if (!causal && trim != 1) continue;
        config.causal = causal;
        config.group_norm = group_norm;
        config.trim_right_ratio = trim;
        config.shortcut_convolution = !group_norm;
        config.lstm_layers = causal ? 1 : 0;
        const EncodecCodec codec{Encodec(config)};
        EXPECT_EQ(codec.decode(codec.encode(noise({2, 100}, 3))).size(1), 5 * 24);
      }
}

TEST(Codecs, FilesBringThemBackAndWrongOnesAreRefused) {
  TemporaryFolder folder;
  const Encodec model = small_encodec();
  const EncodecCodec codec(model);
  const std::string path = folder / "encodec.safetensors";
  save_frozen(path, frozen(model), {{"from", "test"}});
  const auto loaded = open_codec(path);
  EXPECT_EQ(loaded->kind(), "encodec");
  EXPECT_EQ(loaded->identity(), codec.identity());
  const at::Tensor audio = noise({1, 480}, 4);
  EXPECT_TRUE(loaded->encode(audio).equal(codec.encode(audio)));
  EXPECT_EQ(loaded->encode_at(audio, 2 * codec.rate_hz()).size(1), 10);

  EXPECT_THAT(refusal([&] { open_semantic_tokenizer(path); }),
              AllOf(HasSubstr(path), HasSubstr("`encodec`")));
  EXPECT_THAT(refusal([&] { open_text_encoder(path); }), AllOf(HasSubstr(path), HasSubstr("`t5`")));
  std::ofstream(folder / "words.safetensors") << "no weights at all, only words, and a few more of them";
  EXPECT_THAT(refusal([&] { open_codec(folder / "words.safetensors"); }), HasSubstr("words.safetensors"));
  EXPECT_THAT(refusal([&] { open_semantic_tokenizer(folder / "none.safetensors"); }),
              HasSubstr("none.safetensors"));
  EXPECT_THAT(refusal([&] { save_frozen(folder / "x.bin", frozen(model)); }), HasSubstr(".safetensors"));

  // A changed byte of a weight.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-8, std::ios::end);
  file.put('\x55');
  file.close();
  EXPECT_THAT(refusal([&] { open_codec(path); }), HasSubstr("damaged"));
}

TEST(Codecs, SoundStreamBehindTheSameFace) {
  torch::manual_seed(1);
  SoundStreamConfig config;
  config.channels = 4;
  config.strides = {2, 3, 4};
  config.channel_multiples = {2, 2, 4};
  config.dim = 16;
  config.attention_heads = 2;
  config.attention_head_dim = 8;
  config.attention_window = 8;
  config.quantizer.quantizers = 3;
  config.quantizer.groups = 2;
  config.quantizer.codebook_size = 32;
  config.quantizer.kmeans_init = false;
  SoundStream model(config);
  const SoundStreamCodec codec(model);
  const at::Tensor audio = noise({2, 24 * 60 + 7}, 5) * 0.2;
  const at::Tensor codes = codec.encode(audio);
  EXPECT_EQ(codes.sizes(), (std::vector<int64_t>{2, 60, 6}));
  EXPECT_EQ(codec.frames(24 * 60 + 7), 60);
  EXPECT_EQ(codec.quantizers(), 6);
  // What the model itself says.
  EXPECT_TRUE(codes.equal(model->tokenize(audio).permute({1, 2, 0, 3}).flatten(2)));
  EXPECT_TRUE(codec.decode(codes).equal(model->decode_codes(codes).squeeze(1)));
  SoundStream other(config);
  EXPECT_NE(SoundStreamCodec(other).identity(), codec.identity());
}

// The first codes of a grouped codec alone: what the model says when all others are absent, in both orders.
TEST(Codecs, TheFirstCodesOfAGroupedCodecAreNotTakenForAll) {
  for (const std::string order : {"stages", "groups"})
    for (const int64_t codebooks : {1, 2}) {
      torch::manual_seed(1);
      SoundStreamConfig config;
      config.channels = 4;
      config.strides = {2, 3, 4};
      config.channel_multiples = {2, 2, 4};
      config.dim = 16;
      config.attention = false;
      config.quantizer.quantizers = 3;
      config.quantizer.groups = 2;
      config.quantizer.codebooks = codebooks;
      config.quantizer.codebook_size = 32;
      config.quantizer.codebook_dim = codebooks > 1 ? 4 : 0;
      config.quantizer.kmeans_init = false;
      config.code_order = order;
      SoundStream model(config);
      const SoundStreamCodec codec(model);
      const at::Tensor audio = noise({2, 24 * 40}, 5) * 0.2;
      const at::Tensor codes = codec.encode(audio), whole = model->tokenize(audio);
      const int64_t of_group = 3 * codebooks;
      ASSERT_EQ(codes.size(2), 2 * of_group);
      EXPECT_TRUE(codec.decode(codes).equal(model->decode_codes(whole).squeeze(1)));
      for (int64_t kept = 1; kept < 2 * of_group; ++kept) {
        // Which code of which group stands at every place of a frame.
        at::Tensor rest = whole.clone();
        for (int64_t at = kept; at < 2 * of_group; ++at) {
          const bool by_group = order == "groups";
          const int64_t group = by_group ? at / of_group : at / codebooks % 2;
          const int64_t place = by_group ? at % of_group : at / (2 * codebooks) * codebooks + at % codebooks;
          EXPECT_TRUE(codes.select(2, at).equal(whole[group].select(2, place)));
          rest[group].select(2, place).fill_(-1);
        }
        EXPECT_TRUE(codec.decode(codes.narrow(2, 0, kept)).equal(model->decode_codes(rest).squeeze(1)))
            << order << ", the first " << kept;
      }
    }
}

// Streams of a codec that has none of its own give what encode() and decode() give.
TEST(Codecs, EncodecAsItComes) {
  torch::manual_seed(2);
  EncodecConfig config;
  config.dim = 8;
  config.filters = 4;
  config.ratios = {4, 2};
  config.codebooks = 4;
  config.codebook_size = 16;
  config.quantizers = 3;
  const EncodecCodec codec{Encodec(config)};
  EXPECT_FALSE(codec.bounded());
  const at::Tensor audio = (noise({1, 8 * 50}, 5) * 0.2).contiguous();
  const auto encoder = codec.sound_to_codes(1);
  const float* samples = audio.data_ptr<float>();
  EXPECT_EQ(encoder->push({samples, 123}).size(0), 0);
  EXPECT_EQ(encoder->push({samples + 123, 8 * 50 - 123}).size(0), 0);
  const at::Tensor codes = encoder->finish();  // [frames, 1, quantizers]
  EXPECT_TRUE(codes.squeeze(1).equal(codec.encode(audio)[0]));
  const auto decoder = codec.codes_to_sound(1);
  EXPECT_TRUE(decoder->push(codes.narrow(0, 0, 20).narrow(2, 0, 2)).empty());
  EXPECT_TRUE(decoder->push(codes.narrow(0, 20, 30).narrow(2, 0, 2)).empty());
  const at::Tensor sound = at::tensor(decoder->finish());
  EXPECT_TRUE(sound.equal(codec.decode(codes.squeeze(1).narrow(1, 0, 2).unsqueeze(0))[0]));
}

// --- k-means

struct Planted {
  at::Tensor centres;  // [clusters, dim], far apart
  at::Tensor draw(int64_t rows, uint64_t seed) const {
    Rng rng(random_key(seed, "planted"));
    const at::Tensor which = at::empty({rows}, at::kLong);
    for (int64_t i = 0; i < rows; ++i) which[i] = rng.integer(0, centres.size(0));
    return centres.index_select(0, which) + 0.05 * noise({rows, centres.size(1)}, seed);
  }
};

double worst_distance(const at::Tensor& centres, const at::Tensor& found) {
  return at::cdist(centres, found).amin(1).max().item<double>();
}

TEST(Kmeans, FindsPlantedClustersOfUnequalSpread) {
  Planted planted{noise({20, 6}, 3) * 4};
  // One feature a thousand times larger than the rest hides them, unless all are given the same spread.
  const at::Tensor size = at::tensor({1.0, 1.0, 1000.0, 1.0, 0.01, 1.0}, at::kFloat);
  KmeansConfig config;
  config.clusters = 20;
  config.batch_frames = 500;
  config.start_frames = 2000;
  config.max_batches = 30;
  int64_t starts = 0, steps = 0;
  const auto batches = [&](int64_t number) {
    return planted.draw(500, static_cast<uint64_t>(number)) * size;
  };
  const auto fit = fit_kmeans(batches, config, [&](const KmeansProgress& now) {
    ++(now.stage == KmeansProgress::Stage::start ? starts : steps);
  });
  EXPECT_EQ(starts, config.restarts);
  EXPECT_GT(steps, 0);
  const at::Tensor standard = (planted.centres * size - fit.centroids.mean) * fit.centroids.scale;
  EXPECT_LT(worst_distance(standard, fit.centroids.vectors), 0.05);
  EXPECT_LT(fit.inertia, 0.02 * fit.total_spread);
  EXPECT_EQ(fit.unused, 0);
  // The same seed, the same centroids.
  EXPECT_TRUE(fit_kmeans(batches, config).centroids.vectors.equal(fit.centroids.vectors));
  config.seed = 43;
  EXPECT_FALSE(fit_kmeans(batches, config).centroids.vectors.equal(fit.centroids.vectors));
}

// The start sees two clusters only, so that all centroids crowd into them; the rest of the recordings holds
// twelve others. The centroids that nothing chooses any more must go there.
TEST(Kmeans, DeadClustersAreReseeded) {
  const at::Tensor centres = noise({12, 4}, 8) * 5 + 40;
  const Planted early{noise({2, 4}, 9)}, late{centres};
  KmeansConfig config;
  config.clusters = 16;
  config.standardise = false;
  config.start_frames = 400;
  config.restarts = 1;
  config.max_batches = 80;
  config.patience = 80;
  const auto batches = [&](int64_t number) {
    return (number < 2 ? early : late).draw(300, static_cast<uint64_t>(number));
  };
  const auto fit = fit_kmeans(batches, config);
  EXPECT_GE(fit.reseeded, 10);
  EXPECT_LT(worst_distance(centres, fit.centroids.vectors), 0.3);
  config.dead_share = 0;
  const auto stuck = fit_kmeans(batches, config);
  EXPECT_EQ(stuck.reseeded, 0);
  EXPECT_GT(worst_distance(centres, stuck.centroids.vectors), 1);
}

TEST(Kmeans, SaysWhatIsWrong) {
  KmeansConfig config;
  config.clusters = 100;
  config.max_batches = 2;
  EXPECT_THAT(refusal([&] {
                fit_kmeans([](int64_t) { return at::ones({10, 3}); }, config);
              }),
              HasSubstr("fewer clusters"));
  EXPECT_THAT(refusal([&] {
                fit_kmeans([](int64_t) { return at::full({200, 3}, std::nan("")); }, config);
              }),
              HasSubstr("not finite"));
  // All frames alike: every centroid is that frame, and nothing divides by zero.
  config.max_batches = 4;
  const auto fit = fit_kmeans([](int64_t) { return at::ones({200, 3}); }, config);
  EXPECT_TRUE(at::isfinite(fit.centroids.vectors).all().item<bool>());
}

// --- tokenizers

KmeansTokenizer mfcc_tokenizer(uint64_t seed, int64_t clusters = 8) {
  return KmeansTokenizer(std::make_unique<MfccFeatures>(),
                         Centroids{noise({clusters, 39}, seed) * 10, {}, {}});
}

TEST(Mfcc, FollowsTheSoundInTimeAndSurvivesSilence) {
  const MfccFeatures features;
  const at::Tensor audio = noise({1, 16000}, 6) * at::linspace(0.01, 0.5, 16000);
  const at::Tensor frames = features.frames_of(audio);
  EXPECT_EQ(frames.sizes(), (std::vector<int64_t>{1, 50, 39}));
  // One hop later in the recording is one frame later.
  const at::Tensor later = features.frames_of(audio.slice(1, 320));
  EXPECT_TRUE(at::allclose(frames.slice(1, 10, 40), later.slice(1, 9, 39), 1e-3, 1e-3));
  EXPECT_TRUE(at::isfinite(features.frames_of(at::zeros({2, 3200}))).all().item<bool>());
  // Louder raises the first coefficient and no other; slopes know nothing of it.
  const at::Tensor louder = features.frames_of(audio * 2) - frames;
  EXPECT_GT(louder.select(2, 0).min().item<float>(), 1);
  EXPECT_LT(louder.slice(2, 1).abs().max().item<float>(), 1e-2);
  EXPECT_THAT(refusal([&] { features.frames_of(at::zeros({1, 100})); }), HasSubstr("320"));
}

TEST(SemanticTokenizer, IdentityIsTheWeightsAndTheSettings) {
  const KmeansTokenizer one = mfcc_tokenizer(1), same = mfcc_tokenizer(1), other = mfcc_tokenizer(2);
  EXPECT_EQ(one.identity(), same.identity());
  EXPECT_NE(one.identity(), other.identity());
  MfccConfig config;
  config.hop = 160;
  const KmeansTokenizer finer(std::make_unique<MfccFeatures>(config), one.centroids());
  EXPECT_NE(one.identity(), finer.identity());
  EXPECT_EQ(finer.tokens(16000), 100);

  TemporaryFolder folder;
  save_frozen(folder / "t.safetensors", frozen(one));
  const auto loaded = open_semantic_tokenizer(folder / "t.safetensors");
  EXPECT_EQ(loaded->identity(), one.identity());
  const at::Tensor audio = noise({2, 8000}, 7) * 0.1;
  EXPECT_TRUE(loaded->tokenize(audio).equal(one.tokenize(audio)));
  EXPECT_THAT(refusal([&] { open_codec(folder / "t.safetensors"); }),
              AllOf(HasSubstr("t.safetensors"), HasSubstr("semantic-tokenizer")));
  EXPECT_THAT(refusal([] {
                KmeansTokenizer(std::make_unique<MfccFeatures>(), Centroids{at::ones({4, 12}), {}, {}});
              }),
              HasSubstr("[clusters, 39]"));
}

// A token is a function of the sound: not of the rate it comes in, nor of how the caller trains.
TEST(SemanticTokenizer, TokensDoNotDependOnTheCaller) {
  const KmeansTokenizer tokenizer = mfcc_tokenizer(3);
  const at::Tensor audio = noise({2, 16000}, 8) * 0.1;
  const at::Tensor plain = tokenizer.tokenize(audio);
  EXPECT_EQ(plain.scalar_type(), at::kLong);
  {
    const AutocastScope bf16(at::kCPU, true);
    EXPECT_TRUE(tokenizer.tokenize(audio).equal(plain));
  }
  EXPECT_TRUE(tokenizer.tokenize(audio.clone().requires_grad_()).equal(plain));
  EXPECT_EQ(tokenizer.tokenize_at(noise({1, 24000 + 100}, 9), 24000).size(1), 50);
  EXPECT_EQ(cut_to_multiple(at::arange(10).unsqueeze(0), 4, true)[0][0].item<int64_t>(), 2);
  EXPECT_EQ(cut_to_multiple(at::arange(10).unsqueeze(0), 4).size(1), 8);
}

TEST(KmeansCommand, FromRecordingsToATokenizer) {
  TemporaryFolder folder;
  SynthOptions options;
  options.folder = folder / "music";
  options.count = 6;
  options.rate_hz = 16000;
  options.seconds = 3;
  options.format = "wav";
  synth_music(options);
  const std::string out = folder / "semantic.safetensors";
  const std::vector<std::string> words = {"train",
                                          "kmeans",
                                          "--features",
                                          "mfcc",
                                          "--clusters",
                                          "16",
                                          "--data",
                                          options.folder,
                                          "--batch_frames",
                                          "300",
                                          "--start_frames",
                                          "600",
                                          "--max_batches",
                                          "8",
                                          "--threads",
                                          "1",
                                          "-o",
                                          out};
  ASSERT_EQ(run_program(words), 0);
  const auto tokenizer = open_semantic_tokenizer(out);
  EXPECT_EQ(tokenizer->codebook_size(), 16);
  EXPECT_EQ(tokenizer->kind(), "mfcc");
  const MusicPiece piece = synth_music_piece(99, 0, 16000, 2.0);
  const at::Tensor audio = at::from_blob(const_cast<float*>(piece.samples.data()),
                                         {1, static_cast<int64_t>(piece.samples.size())});
  const at::Tensor ids = tokenizer->tokenize(audio);
  EXPECT_GE(ids.min().item<int64_t>(), 0);
  EXPECT_LT(ids.max().item<int64_t>(), 16);
  // Music that it never heard uses a good part of the tokens.
  std::set<int64_t> used;
  for (int64_t i = 0; i < ids.size(1); ++i) used.insert(ids[0][i].item<int64_t>());
  EXPECT_GE(used.size(), 4u);

  EXPECT_EQ(run_program({"train", "kmeans", "--features", "hubert:9", "--data", options.folder}), 2);
  EXPECT_EQ(run_program({"train", "kmeans", "--features", "mel", "--data", options.folder}), 2);
  EXPECT_EQ(run_program({"train", "kmeans"}), 2);
}

}  // namespace frozen_test
}  // namespace melete
