// Which weights a model took is said: by load_weights() to whoever listens, and by the program to a person.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "io/base/audio_file.h"
#include "real_process.h"
#include "run/kept_models.h"
#include "run/load_weights.h"
#include "run/run_folder.h"

namespace melete {
namespace said_weights_test {

namespace fs = std::filesystem;
using melete::testing::TemporaryFolder;
using ::testing::HasSubstr;

TEST(WeightsListener, HearsWhatIsTakenThoughTheModelWasKept) {
  FoundCheckpoint found{"x.safetensors", {}};
  found.checkpoint.tensors = {{"model.weight", at::ones({2, 2})},
                              {"model.bias", at::ones({2})},
                              {"ema.average.weight", at::zeros({2, 2})}};
  std::vector<std::string> outer, inner;
  const auto into = [](std::vector<std::string>& list) {
    return [&list](const TakenWeights& taken) {
      list.push_back(fmt::format("{} {}", taken.path, taken.averaged ? "averaged" : "online"));
    };
  };
  const auto load = [&](Weights weights) {
    kept_model<std::shared_ptr<int>>("test", "/dev/null", weights_name(weights), [&] {
      torch::nn::Linear model(2, 2);
      load_weights(*model, "", found, weights, "test");
      return std::make_shared<int>(1);
    });
  };
  load(Weights::best);  // nobody listens
  keep_models({.models = 4});
  {
    const WeightsListener first(into(outer));
    load(Weights::best);
    {
      const WeightsListener second(into(inner));
      load(Weights::online);
      load(Weights::best);  // kept
    }
    load(Weights::online);  // kept
  }
  load(Weights::best);
  keep_models({});
  EXPECT_EQ(inner, (std::vector<std::string>{"x.safetensors online", "x.safetensors averaged"}));
  EXPECT_EQ(outer, (std::vector<std::string>{"x.safetensors averaged", "x.safetensors online",
                                             "x.safetensors averaged", "x.safetensors online"}));
}

// The real program, as a person starts it.
class SaidWeights : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TemporaryFolder>();
    run({"data", "synth", "-o", in("data"), "--count", "2", "--seconds", "0.5", "--rate", "8000", "--format",
         "wav"});
    run({"train", "soundstream", "--config", std::string(MELETE_SOURCE_DIR) + "/tests/tiny_codec.toml",
         "--data", in("data"), "--out", in("codec"), "--steps", "2", "--threads", "1", "--train.sample_every",
         "0", "--train.validate_every", "0", "--train.ema.update_after_step", "0"});
  }
  static void TearDownTestSuite() { shared_.reset(); }

  static std::string in(const std::string& name) { return shared_->path() + "/" + name; }
  static std::string run(Words words) {
    const Ended ended = Process(MELETE_PROGRAM, words, in("log")).wait();
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output;
  }
  static std::string checkpoint() { return in("codec/checkpoints/" + step_name(2) + ".safetensors"); }
  // Once, and with no other beside it.
  static void expect_says(const std::string& output, const std::string& line) {
    EXPECT_THAT(output, HasSubstr(line + "\n"));
    const size_t first = output.find(" weights of ");
    EXPECT_EQ(output.find(" weights of ", first + 1), std::string::npos) << output;
  }

  static inline std::unique_ptr<TemporaryFolder> shared_;
};

TEST_F(SaidWeights, ByTheCodec) {
  for (const auto& [flag, word] :
       std::vector<std::pair<std::string, std::string>>{{"ema", "averaged"}, {"online", "online"}}) {
    const std::string line = fmt::format("{} weights of {}", word, checkpoint());
    expect_says(run({"codec", "encode", in("data"), "--from", in("codec"), "--weights", flag, "-o",
                     in("tokens-" + flag), "--threads", "1"}),
                line);
    expect_says(run({"codec", "decode", in("tokens-" + flag), "--from", in("codec"), "--weights", flag, "-o",
                     in("decoded-" + flag), "--threads", "1"}),
                line);
    expect_says(run({"export", in("codec"), "-o", in(flag + ".safetensors"), "--weights", flag}), line);
  }
  // What was written has one kind of weights, and an average is missed.
  expect_says(run({"codec", "encode", in("data"), "--from", in("online.safetensors"), "-o", in("again"),
                   "--threads", "1"}),
              fmt::format("online weights of {}, which has no average", in("online.safetensors")));
}

TEST_F(SaidWeights, ByGenerating) {
  const Words small = {"--data",
                       in("data"),
                       "--threads",
                       "1",
                       "--steps",
                       "1",
                       "--batch_size",
                       "1",
                       "--model.depth",
                       "1",
                       "--model.dim",
                       "16",
                       "--model.heads",
                       "2",
                       "--model.head_dim",
                       "8",
                       "--data.segment_seconds",
                       "0.3",
                       "--train.ema.enabled",
                       "true"};
  const auto train = [&](const std::string& stage, const Words& more) {
    Words words = {"train", stage, "--out", in("runs/" + stage)};
    words.insert(words.end(), small.begin(), small.end());
    words.insert(words.end(), more.begin(), more.end());
    run(words);
  };
  run({"train", "kmeans", "--data", in("data"), "-o", in("semantic.safetensors"), "--clusters", "8",
       "--threads", "1"});
  const Words semantic = {"--semantic_from", in("semantic.safetensors")};
  train("semantic", semantic);
  Words both = semantic;
  both.insert(both.end(), {"--codec_from", in("codec"), "--model.quantizers", "2"});
  train("coarse", both);
  for (const auto& [flag, word] :
       std::vector<std::pair<std::string, std::string>>{{"ema", "averaged"}, {"online", "online"}}) {
    const auto line = [&](const std::string& stage) {
      return fmt::format("{} weights of {}/checkpoints/{}.safetensors", word, in("runs/" + stage),
                         step_name(1));
    };
    expect_says(run({"generate", "semantic", "--from", in("runs/semantic"), "--seconds", "0.1", "--weights",
                     flag, "-o", in("out.txt"), "--threads", "1"}),
                line("semantic"));
    const std::string all = run({"generate", "audiolm", "--from", in("runs"), "--seconds", "0.1", "--weights",
                                 flag, "-o", in("out.wav"), "--threads", "1"});
    for (const char* stage : {"semantic", "coarse"}) EXPECT_THAT(all, HasSubstr(line(stage) + "\n"));
    EXPECT_THAT(all, HasSubstr(fmt::format("averaged weights of {}\n", checkpoint())))
        << "a codec is taken at its best";
  }
}

}  // namespace said_weights_test
}  // namespace melete
