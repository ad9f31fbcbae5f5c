// AudioLM over a codec of two groups, from recordings to sound, as a person would do it (audiolm-pytorch's
// first example has rq_groups = 2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/audio_file.h"
#include "roles/open.h"
#include "small_codec.h"
#include "systems/audiolm/load.h"
#include "systems/soundstream/load.h"

namespace melete {
namespace grouped_codec_test {

namespace fs = std::filesystem;
using namespace testing;

class GroupedCodec : public ::testing::Test {
 protected:
  GroupedCodec() {
    auto settings = small_codec_settings();
    settings["model"]["codec"]["quantizer"]["groups"] = 2;
    settings["model"]["codec"]["quantizer"]["quantizers"] = 3;
    save_checkpoint(codec, small_codec_checkpoint(5, settings));
    for (int i = 0; i < 4; ++i) {
      Rng rng(static_cast<uint64_t>(i));
      std::vector<float> wave(8000);
      for (size_t at = 0; at < wave.size(); ++at)
        wave[at] = static_cast<float>(0.3 * std::sin(0.02 * (i + 1) * static_cast<double>(at)) +
                                      0.05 * rng.uniform(-1, 1));
      write_audio(folder / ("in/" + std::to_string(i) + ".wav"), wave, 8000);
    }
  }

  void tokenize() {
    const std::string in = folder / "in";
    ASSERT_EQ(
        run_program({"train", "kmeans", "--data", in, "-o", tokenizer, "--clusters", "8", "--threads", "1"}),
        0);
    ASSERT_EQ(run_program({"data", "tokenize", in, "--semantic", tokenizer, "--codec", codec, "-o",
                           folder / "tokens"}),
              0);
  }

  // A stage of a few weights, for a few steps. Its tokens come from the folder that `tokenize` made.
  void train(const std::string& stage, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train",
                                      stage,
                                      "--data",
                                      folder / "tokens",
                                      "--out",
                                      folder / stage,
                                      "--steps",
                                      "4",
                                      "--batch_size",
                                      "2",
                                      "--data.segment_seconds",
                                      "0.3",
                                      "--threads",
                                      "1",
                                      "--model.dim",
                                      "16",
                                      "--model.depth",
                                      "1",
                                      "--model.heads",
                                      "2",
                                      "--model.head_dim",
                                      "8"};
    words.insert(words.end(), more.begin(), more.end());
    ASSERT_EQ(run_program(words), 0) << stage;
  }

  TemporaryFolder folder;
  const std::string codec = folder / "codec.safetensors", tokenizer = folder / "semantic.safetensors";
};

TEST_F(GroupedCodec, FromRecordingsToSound) {
  const std::string in = folder.path() + "/in";
  tokenize();
  train("semantic", {"--semantic_from", tokenizer});
  train("coarse", {"--semantic_from", tokenizer, "--codec_from", codec, "--model.quantizers", "2"});
  train("fine", {"--codec_from", codec, "--model.coarse_quantizers", "2"});

  const auto sound = [&](std::vector<std::string> words) {
    const std::string out = folder / "out.wav";
    fs::remove(out);
    words.insert(words.end(), {"-o", out, "--threads", "1"});
    EXPECT_EQ(run_program(words), 0);
    return fs::exists(out) ? read_audio(out).frames() : 0;
  };
  const std::string runs = folder.path();
  EXPECT_EQ(sound({"generate", "audiolm", "--from", runs, "--seconds", "0.2"}), 1600);
  EXPECT_EQ(sound({"generate", "audiolm", "--semantic", runs + "/semantic", "--coarse", runs + "/coarse",
                   "--seconds", "0.2"}),
            1600);
  EXPECT_EQ(sound({"generate", "coarse", "--from", runs + "/coarse", "--prompt", in + "/0.wav", "--seconds",
                   "0.2"}),
            1600);
  EXPECT_EQ(sound({"generate", "fine", "--from", runs + "/fine", "--prompt", in + "/0.wav",
                   "--prompt_seconds", "0.1"}),
            800);
}

// Tokens that were learned with how long they last are generated so, and stages that were not trained alike
// are refused.
TEST_F(GroupedCodec, RunsOfATokenAreGeneratedAsTheyWereTrained) {
  tokenize();
  train("semantic", {"--semantic_from", tokenizer, "--no-task.loss.unique_consecutive"});
  train("coarse", {"--semantic_from", tokenizer, "--codec_from", codec, "--model.quantizers", "2"});
  AudioLmPaths paths;
  find_parts(folder.path(), paths);
  try {
    load_audiolm(paths);
    FAIL() << "expected a refusal";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("unique_consecutive"));
  }
  train("coarse", {"--semantic_from", tokenizer, "--codec_from", codec, "--model.quantizers", "2",
                   "--no-task.loss.unique_consecutive", "--fresh"});
  AudioLm model = load_audiolm(paths);
  EXPECT_FALSE(model.unique_consecutive);
  AudioLmRequest request;
  request.prompt = 0.1 * at::ones({4000});  // one token for half a second
  request.prompt_rate_hz = 8000;
  request.seconds = 0.1;
  request.may_end = false;
  const int64_t tokens = model.tokenizer->tokenize_at(request.prompt.unsqueeze(0), 8000).size(1);
  ASSERT_GT(tokens, 10);
  const auto same = [&](const at::Tensor& ids) {
    return ids[0].narrow(0, 5, 5).eq(ids[0][5]).all().item<bool>();
  };
  EXPECT_TRUE(same(generate(model, request).semantic));
  model.unique_consecutive = true;
  EXPECT_FALSE(same(generate(model, request).semantic));
}

TEST_F(GroupedCodec, CoarseCodesAreTheFirstStageOfBothGroups) {
  const auto opened = open_codec(codec);
  EXPECT_EQ(opened->quantizers(), 6);
  EXPECT_EQ(opened->groups(), 2);
  const at::Tensor wave = at::tensor(read_audio(folder / "in/1.wav").samples).unsqueeze(0);
  const at::Tensor codes = opened->encode(wave);
  SoundStream model = load_codec(codec).model;
  const at::Tensor by_group = model->tokenize(wave);  // [groups, 1, frames, quantizers]
  EXPECT_TRUE(codes.select(2, 0).equal(by_group[0].select(2, 0)));
  EXPECT_TRUE(codes.select(2, 1).equal(by_group[1].select(2, 0)));
  EXPECT_TRUE(
      opened->decode(codes.narrow(2, 0, 2)).equal(model->decode_codes(by_group.narrow(3, 0, 1)).squeeze(1)));
}

}  // namespace grouped_codec_test
}  // namespace melete
