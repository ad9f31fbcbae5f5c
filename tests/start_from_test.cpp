// A new run that begins with the weights of another, and weights that stay as they are.
#include "train/start_from.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <functional>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "every_recipe.h"
#include "systems/foreign.h"

namespace melete {
namespace start_from_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const std::string kSource = MELETE_SOURCE_DIR;
const std::string kPackage = kSource + "/tests/golden/audiolm/checkpoints/soundstream.2.pt";

struct Said {
  int code;
  std::string out, err;
};
Said say(const Words& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(words);
  std::string out = ::testing::internal::GetCapturedStdout();
  return {code, std::move(out), ::testing::internal::GetCapturedStderr()};
}

// A codec of a thousand weights that was trained for six steps, whose average is far from the weights.
class StartFrom : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<melete::testing::TemporaryFolder>();
    ASSERT_EQ(say({"data", "synth", "-o", data(), "--count", "3", "--seconds", "0.5", "--rate", "8000",
                   "--format", "wav"})
                  .code,
              0);
    const Said said = say(train("trained", 6,
                                {"--config", kSource + "/tests/tiny_codec.toml", "--train.keep_last", "9",
                                 "--train.ema.update_after_step", "0", "--train.ema.update_every", "1",
                                 "--generator.optimiser.learning_rate", "0.01"}));
    ASSERT_EQ(said.code, 0) << said.err;
  }
  static void TearDownTestSuite() { shared_.reset(); }

  static std::string data() { return shared_->path() + "/data"; }
  static std::string run(const std::string& name) { return shared_->path() + "/" + name; }
  static Checkpoint at(const std::string& name, int64_t step) {
    return load_checkpoint(run(name) + "/checkpoints/" + step_name(step) + ".safetensors");
  }
  static Words train(const std::string& name, int64_t steps, const Words& more) {
    Words words = {"train",
                   "soundstream",
                   "--data",
                   data(),
                   "--out",
                   run(name),
                   "--steps",
                   std::to_string(steps),
                   "--threads",
                   "1",
                   "--train.sample_every",
                   "0",
                   "--train.validate_every",
                   "0",
                   "--data.segment_seconds",
                   "0.25"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // One step at a rate of zero: what the run began with.
  static Said begin(const std::string& name, Words more) {
    more.insert(more.end(),
                {"--generator.optimiser.learning_rate", "0", "--discriminator.optimiser.learning_rate", "0"});
    return say(train(name, 1, more));
  }
  // Whether what `name` began with is what stands in `other` under that prefix, for the names that `wanted`
  // lets through. Codebooks follow the data of a step, whatever its rate.
  static bool began_with(const std::string& name, const Checkpoint& other, const std::string& prefix,
                         const std::function<bool(const std::string&)>& wanted = {}) {
    size_t compared = 0;
    for (const auto& [key, tensor] : at(name, 1).part("model.")) {
      if (key.find("codebook") != std::string::npos || (wanted && !wanted(key))) continue;
      const auto found = other.tensors.find(prefix + key);
      if (found == other.tensors.end()) continue;
      ++compared;
      if (!tensor.equal(found->second)) return false;
    }
    EXPECT_GT(compared, 0u) << "nothing to compare";
    return true;
  }

  static inline std::unique_ptr<melete::testing::TemporaryFolder> shared_;
};

bool of_codec(const std::string& name) {
  return name.starts_with("codec.");
}
bool of_discriminators(const std::string& name) {
  return name.starts_with("discriminators.");
}

TEST_F(StartFrom, TakesTheAverageOfTheNewestAndBeginsAnew) {
  const Said said = begin("newest", {"--from", run("trained"), "--generator.schedule.warmup_steps", "10"});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("starts from " + run("trained") + "/checkpoints/step_00000006"));
  const Checkpoint made = at("newest", 1), trained = at("trained", 6);
  EXPECT_EQ(made.meta["config"]["model"], trained.meta["config"]["model"]) << "no --config was given";
  EXPECT_TRUE(began_with("newest", trained, "ema.average."));
  EXPECT_FALSE(began_with("newest", trained, "model.", of_codec)) << "nothing to show";
  EXPECT_TRUE(began_with("newest", trained, "model.", of_discriminators)) << "these have no average";
  // Step, schedule, optimiser and average are those of a new run.
  EXPECT_EQ(made.step(), 1);
  size_t moments = 0;
  for (const auto& [name, tensor] : made.part("optimiser."))
    if (name.ends_with(".step")) {
      ++moments;
      EXPECT_EQ(tensor.item<int64_t>(), 1) << name;
    }
  EXPECT_GT(moments, 10u);
  EXPECT_EQ(made.tensors.at("ema.step").item<int64_t>(), 1);
  EXPECT_EQ(made.tensors.at("trainer.batches").item<int64_t>(), 1);
}

TEST_F(StartFrom, OneStepOfARunIsChosen) {
  ASSERT_EQ(begin("second", {"--from", run("trained"), "--from-step", "2"}).code, 0);
  EXPECT_TRUE(began_with("second", at("trained", 2), "ema.average."));
  EXPECT_FALSE(began_with("second", at("trained", 6), "ema.average."));

  const Said absent = begin("absent", {"--from", run("trained"), "--from-step", "5"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("has no checkpoint of step 5; it has: 6, 4, 2"));
  const Said file = begin(
      "absent", {"--from", run("trained") + "/checkpoints/step_00000002.safetensors", "--from-step", "2"});
  EXPECT_EQ(file.code, 1);
  EXPECT_THAT(file.err, HasSubstr("is no run folder"));
  EXPECT_FALSE(fs::exists(run("absent")));
}

TEST_F(StartFrom, OnlyTheNamedParts) {
  ASSERT_EQ(begin("parts", {"--from", run("trained"), "--from-parts",
                            "codec.encoder_input,codec.encoder_blocks.0,discriminators.stft"})
                .code,
            0);
  ASSERT_EQ(begin("fresh", {"--config", kSource + "/tests/tiny_codec.toml"}).code, 0);
  const auto taken = [](const std::string& name) {
    return name.starts_with("codec.encoder_input") || name.starts_with("codec.encoder_blocks.0") ||
           name.starts_with("discriminators.stft");
  };
  const auto average = [&](const std::string& name) { return taken(name) && of_codec(name); };
  EXPECT_TRUE(began_with("parts", at("trained", 6), "ema.average.", average));
  EXPECT_TRUE(began_with("parts", at("trained", 6), "model.",
                         [&](const std::string& name) { return taken(name) && of_discriminators(name); }));
  EXPECT_TRUE(
      began_with("parts", at("fresh", 1), "model.", [&](const std::string& name) { return !taken(name); }));
  EXPECT_FALSE(began_with("parts", at("fresh", 1), "model.", taken)) << "nothing to show";

  const Said none = begin("absent", {"--from", run("trained"), "--from-parts", "encoder"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("none of the weights"));
  EXPECT_FALSE(fs::exists(run("absent")));
}

TEST_F(StartFrom, NamesThatOneOfTheTwoLacksAreListedAndRefused) {
  const Words another = {
      "--from", run("trained"), "--model.codec.attention", "true", "--model.codec.attention_head_dim", "4"};
  const Said missing = begin("absent", another);
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("lacks"), HasSubstr("codec.decoder_attention"),
                                 HasSubstr("from_parts"), HasSubstr("from_partly")));
  EXPECT_FALSE(fs::exists(run("absent")));
  Words allowed = another;
  allowed.push_back("--from-partly");
  const Said passed = begin("larger", allowed);
  ASSERT_EQ(passed.code, 0) << passed.err;
  EXPECT_THAT(passed.out, HasSubstr("were not there"));
  EXPECT_TRUE(began_with("larger", at("trained", 6), "ema.average."));

  // And the other way round: the file has what the model does not.
  const Words smaller = {"--from", run("larger"), "--model.codec.attention", "false"};
  const Said unknown = begin("absent", smaller);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("weights that the model does not"),
                                 HasSubstr("codec.decoder_attention"), HasSubstr("from_partly")));
  allowed = smaller;
  allowed.push_back("--from-partly");
  ASSERT_EQ(begin("smaller", allowed).code, 0);
  EXPECT_TRUE(began_with("smaller", at("trained", 6), "ema.average."));

  // Another size is never passed over.
  const Said shape = begin("absent", {"--from", run("trained"), "--from-partly", "--model.codec.dim", "8"});
  EXPECT_EQ(shape.code, 1);
  EXPECT_THAT(shape.err,
              AllOf(HasSubstr("codec.decoder_film.condition.bias is [8]"), HasSubstr("[16] here")));
  EXPECT_FALSE(fs::exists(run("absent")));
}

TEST_F(StartFrom, WhatExportWritesForFinetuning) {
  const std::string whole = run("finetune.safetensors"), slim = run("inference.safetensors");
  ASSERT_EQ(say({"export", run("trained"), "-o", whole, "--for", "finetune"}).code, 0);
  ASSERT_EQ(say({"export", run("trained"), "-o", slim}).code, 0);
  const Said said = begin("tuned", {"--from", whole});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(began_with("tuned", at("trained", 6), "ema.average."));
  EXPECT_TRUE(began_with("tuned", at("trained", 6), "model.", of_discriminators));
  // Without discriminators it is only a part of what is trained.
  const Said part = begin("absent", {"--from", slim});
  EXPECT_EQ(part.code, 1);
  EXPECT_THAT(part.err, HasSubstr("discriminators."));
  const Said codec = begin("codec", {"--from", slim, "--from-parts", "codec."});
  ASSERT_EQ(codec.code, 0) << codec.err;
  EXPECT_TRUE(began_with("codec", at("trained", 6), "ema.average."));
}

TEST_F(StartFrom, WhatImportMakesOfAForeignPackage) {
  const std::string imported = run("imported.safetensors");
  ASSERT_EQ(say({"import", "audiolm-pytorch", kPackage, "-o", imported}).code, 0);
  const Said said = begin("foreign", {"--from", imported, "--data.segment_seconds", "0.1"});
  ASSERT_EQ(said.code, 0) << said.err;
  const Checkpoint package = load_checkpoint(imported), made = at("foreign", 1);
  EXPECT_GT(package.step(), 1);
  EXPECT_EQ(made.meta["config"]["model"], package.meta["config"]["model"]);
  EXPECT_TRUE(began_with("foreign", package, "ema.average."));
  EXPECT_EQ(made.tensors.at("ema.step").item<int64_t>(), 1);

  const std::string semantic = run("semantic.safetensors");
  save_checkpoint(semantic,
                  import_foreign("audiolm-pytorch",
                                 kSource + "/tests/golden/audiolm/checkpoints/semantic.transformer.2.pt")
                      .checkpoint);
  const Said other = begin("absent", {"--from", semantic});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("is a checkpoint of `semantic`, which `soundstream` cannot start from"));
  EXPECT_EQ(begin("absent", {"--from", imported, "--resume"}).code, 2);
  EXPECT_FALSE(fs::exists(run("absent")));
}

TEST_F(StartFrom, FrozenWeightsStayBitForBit) {
  const Said said = say(train(
      "frozen", 3,
      {"--from", run("trained"), "--generator.frozen", "codec.encoder_*,codec.encoder_blocks.*,*film*",
       "--discriminator.frozen", "discriminators.scales.*", "--generator.optimiser.learning_rate", "0.01",
       "--generator.optimiser.weight_decay", "0.1", "--discriminator.optimiser.learning_rate", "0.01"}));
  ASSERT_EQ(said.code, 0) << said.err;
  const Checkpoint before = at("trained", 6), after = at("frozen", 3);
  size_t still = 0, moved = 0;
  for (const auto& [name, tensor] : after.part("model.")) {
    if (name.find("codebook") != std::string::npos || name.ends_with("threshold")) continue;
    const auto average = before.tensors.find("ema.average." + name);
    const at::Tensor start =
        average != before.tensors.end() ? average->second : before.tensors.at("model." + name);
    const bool frozen = name.starts_with("codec.encoder") || name.find("film") != std::string::npos ||
                        name.starts_with("discriminators.scales.");
    (frozen ? still : moved) += 1;
    EXPECT_EQ(tensor.equal(start), frozen) << name;
    EXPECT_EQ(after.tensors.count(
                  fmt::format("optimiser.{}.{}.step", of_codec(name) ? "generator" : "discriminator", name)),
              frozen ? 0u : 1u)
        << name;
  }
  EXPECT_GT(still, 20u);
  EXPECT_GT(moved, 20u);
}

TEST_F(StartFrom, APatternThatFreezesNothingOrEverythingIsRefused) {
  for (const auto& [pattern, says] : std::vector<std::pair<std::string, std::string>>{
           {"encoder.*", "no parameter of phase generator is called `encoder.*`"},
           {"discriminators.*", "no parameter of phase generator is called `discriminators.*`"},
           {"*", "nothing of phase generator is left to train"}}) {
    const Said said = say(train("absent", 1, {"--from", run("trained"), "--generator.frozen", pattern}));
    EXPECT_EQ(said.code, 1);
    EXPECT_THAT(said.err, HasSubstr(says));
    EXPECT_FALSE(fs::exists(run("absent"))) << pattern;
  }
}

TEST_F(StartFrom, AModelIsLoadedWithTheWeightsThatWereAskedFor) {
  torch::nn::Linear model(4, 2);
  FoundCheckpoint found{"x.safetensors", {}};
  found.checkpoint.tensors = {{"model.m.weight", at::full({2, 4}, 1.)},
                              {"model.m.bias", at::full({2}, 2.)},
                              {"ema.average.m.weight", at::full({2, 4}, 3.)}};
  EXPECT_TRUE(load_weights(*model, "m.", found, Weights::best, "test"));
  EXPECT_EQ(model->weight.detach().mean().item<float>(), 3);
  EXPECT_EQ(model->bias.detach().mean().item<float>(), 2) << "has no average";
  EXPECT_FALSE(load_weights(*model, "m.", found, Weights::online, "test"));
  EXPECT_EQ(model->weight.detach().mean().item<float>(), 1);

  const auto refusal = [&](const std::string& prefix) {
    try {
      load_weights(*model, prefix, found, Weights::best, "test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("n."), HasSubstr("x.safetensors lacks model.n."));
  found.checkpoint.tensors["model.m.bias"] = at::zeros({3});
  EXPECT_THAT(refusal("m."), HasSubstr("bias of x.safetensors has another shape"));

  EXPECT_THROW(weights_named("average"), Error);
  for (const char* name : {"ema", "online"}) EXPECT_EQ(weights_name(weights_named(name)), name);
  EXPECT_THROW(open_checkpoint(data(), "test"), Error) << "recordings are no run";
  EXPECT_THROW(open_checkpoint(run("trained"), "test", "semantic"), Error);
  EXPECT_EQ(open_checkpoint(run("trained"), "test", "soundstream").checkpoint.step(), 6);
}

}  // namespace start_from_test
}  // namespace melete
