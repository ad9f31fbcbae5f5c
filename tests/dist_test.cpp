// Several real processes on this machine train one model: equal to one process, whatever is switched on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/record_function.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "core/base/random.h"
#include "core/engine.h"
#include "dist/group.h"
#include "ranks.h"
#include "systems/audiolm/task.h"
#include "toy_task.h"
#include "train/trainer.h"

namespace melete {
namespace dist_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(Ranks, TwoEqualOne) {
  EXPECT_LT(difference(one_process(), two_processes()), kRounding);
  // The codebooks were really placed, followed and revived.
  const Checkpoint both = load_checkpoint(two_processes());
  int64_t codebooks = 0;
  for (const auto& [name, tensor] : both.tensors)
    if (name.starts_with("model.") && name.ends_with("initialised")) {
      ++codebooks;
      EXPECT_EQ(tensor.item<float>(), name.find("stages.0") != std::string::npos ? 1 : tensor.item<float>());
    }
  EXPECT_EQ(codebooks, 3);
  EXPECT_EQ(both.meta["ranks"], 2);
  const Words never{"--batch_size", "8", "--model.codec.quantizer.dead_code_threshold", "0"};
  EXPECT_GT(difference(reference(6, never, "never-revived"), two_processes()), 100 * kRounding);
}

TEST_F(Ranks, FourWithAccumulationEqualOne) {
  run_well(words(folder_ / "one", 4, {"--batch_size", "8", "--train.accumulate", "2"}));
  run_well(words(folder_ / "four", 4, {"--batch_size", "2", "--train.accumulate", "2", "--procs", "4"}));
  EXPECT_LT(difference(checkpoint(folder_ / "one", 4), checkpoint(folder_ / "four", 4)), kRounding);
}

TEST_F(Ranks, UnevenSharesEqualOneAndReportTheSame) {
  const Words split = {"--batch_size", "5", "--train.dist.split_batches", "true"};
  run_well(words(folder_ / "one", 4, split));
  Words three = split;
  three.insert(three.end(), {"--procs", "3"});  // 2, 2 and 1
  run_well(words(folder_ / "three", 4, three));
  EXPECT_LT(difference(checkpoint(folder_ / "one", 4), checkpoint(folder_ / "three", 4)), kRounding);
  // What all ranks together report: means of the last step, and of a validation that each did a part of.
  for (const char* kind : {"step", "validation"}) {
    const auto one = last_row(folder_ / "one", kind)["losses"],
               together = last_row(folder_ / "three", kind)["losses"];
    ASSERT_GT(one.size(), 2u) << one;
    ASSERT_EQ(one.size(), together.size()) << together;
    for (const auto& [name, value] : one.items()) {
      const double alone = value.get<double>(), mean = together[name].get<double>();
      // How many codes are in use is a figure of each rank's own frames: fewer frames, fewer codes.
      if (std::string(kind) == "step" && (name == "code_use" || name == "perplexity"))
        EXPECT_TRUE(mean > 0 && mean <= alone) << name << " " << mean << " " << alone;
      else
        EXPECT_NEAR(alone, mean, 1e-4 * (1 + std::abs(alone))) << kind << " " << name;
    }
  }
}

TEST_F(Ranks, ShardedOptimiserEqualsWhole) {
  const Words sharded = {"--batch_size", "4", "--procs", "2", "--train.dist.shard_optimiser", "true"};
  run_well(words(folder_ / "run", 4, sharded));
  Words on = words(folder_ / "run", 6, sharded);
  on.push_back("--resume");
  run_well(on);
  EXPECT_LT(difference(two_processes(), checkpoint(folder_ / "run", 6)), 1e-6);
}

TEST_F(Ranks, ResumesWithAnotherNumberOfRanks) {
  run_well(words(folder_ / "run", 4, {"--batch_size", "4", "--procs", "2"}));
  fs::copy(folder_ / "run", folder_ / "other", fs::copy_options::recursive);
  run_well(words(folder_ / "run", 6, {"--batch_size", "2", "--procs", "4", "--resume"}));
  EXPECT_LT(difference(two_processes(), checkpoint(folder_ / "run", 6)), kRounding);
  // Batches of another size go on at the same recording: 4 steps of 8, then one of 3.
  run_well(words(folder_ / "other", 5, {"--batch_size", "1", "--procs", "3", "--resume"}));
  const Checkpoint other = load_checkpoint(checkpoint(folder_ / "other", 5));
  EXPECT_EQ(other.tensors.at("trainer.origin").item<int64_t>(), 32);
  EXPECT_EQ(other.tensors.at("trainer.batches").item<int64_t>(), 1);
  EXPECT_EQ(other.tensors.at("trainer.batch_items").item<int64_t>(), 3);
}

// Sequences of an endless stream, shared out like recordings.
class Sequences : public BatchSource {
 public:
  Sequences(int64_t items, const Group& group) : items_(items), rank_(group.rank()), size_(group.size()) {}
  Batch batch(int64_t number) override {
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < items_; ++i) {
      const auto item = static_cast<uint64_t>((number * size_ + rank_) * items_ + i);
      rows.push_back(at::randint(
          0, 20, {12}, at::detail::createCPUGenerator(random_key(3, "sequence", {item})), at::kLong));
    }
    Batch batch;
    batch.number = number;
    batch.set("semantic", at::stack(rows));
    batch.set_words("text", std::vector<std::string>(static_cast<size_t>(items_)));
    return batch;
  }

 private:
  int64_t items_, rank_, size_;
};

// Not a test of its own: one rank of the test below, in a process of its own.
TEST(Helper, OneRankOfATransformer) {
  const char* out = std::getenv("MELETE_TEST_TRANSFORMER");
  if (!out) GTEST_SKIP() << "runs only as a process of Ranks.ATransformerInTwoEqualsOne";
  set_threads(1);
  DistConfig dist;
  dist.heartbeat_seconds = 0.1;
  Group group(read_place(), dist);
  torch::manual_seed(7 + group.rank());  // different on purpose: the main rank's weights count
  SemanticConfig model;
  model.semantic_tokens = 20;
  model.stage.transformer.dim = 16;
  model.stage.transformer.depth = 2;
  model.stage.transformer.heads = 2;
  model.stage.transformer.head_dim = 8;
  StageTaskConfig settings;
  settings.loss.forget = 0;                  // masks are each rank's own draws,
  settings.loss.unique_consecutive = false;  // and means over tokens need equal lengths
  settings.phase.optimiser.eps = 1e-3;
  settings.phase.optimiser.weight_decay = 0.1;
  SemanticTask task(model, settings, {});
  Sequences source(8 / group.size(), group);
  TrainerConfig config;
  config.steps = 5;
  config.accumulate = 2;
  config.seed = 4;
  config.dist.shard_optimiser = group.size() == 4;
  TrainerParts parts{task, source};
  parts.group = &group;
  Trainer trainer(std::move(parts), config);
  for (int64_t i = 0; i < config.steps; ++i) EXPECT_FALSE(trainer.step().skipped);
  const Checkpoint state = trainer.checkpoint();
  if (group.main()) save_checkpoint(out, state);
  group.finish();
}

TEST_F(Ranks, ATransformerInTwoEqualsOne) {
  for (const int64_t size : {1, 2, 4}) {
    const int port = free_port();
    for (const Ended& ended :
         run_ranks(size, "/proc/self/exe", {"--gtest_filter=Helper.OneRankOfATransformer"}, folder_,
                   [&](int64_t rank) {
                     Variables variables = rank_of(rank, size, port);
                     variables["MELETE_TEST_TRANSFORMER"] =
                         (folder_ / fmt::format("{}.safetensors", size)).string();
                     return variables;
                   }))
      ASSERT_EQ(ended.code, 0) << ended.output;
  }
  const auto saved = [&](int64_t size) { return (folder_ / fmt::format("{}.safetensors", size)).string(); };
  EXPECT_LT(difference(saved(1), saved(2)), kRounding);
  EXPECT_LT(difference(saved(1), saved(4)), kRounding) << "with a sharded optimiser";
}

// A toy task whose last rank gets a NaN loss at step 3 and whose first gets an infinite gradient under a
// finite loss at step 5.
struct Poisoned : toy::ToyTask {
  explicit Poisoned(const Group& group) : toy::ToyTask({.draws = false, .buffers = false}), group_(group) {
    poison = [this](const StepContext& context) {
      const bool here = group_.rank() == group_.size() - 1 && context.micro_batch == 0;
      return context.step == 2 && here ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    };
  }
  std::vector<Phase> phases() override {
    auto all = toy::ToyTask::phases();
    all[0].optimiser.eps = all[1].optimiser.eps = 1e-3;
    all[0].loss = [this, sound = all[0].loss](const Batch& batch, const StepContext& context) {
      Losses losses = sound(batch, context);
      if (context.step == 4 && group_.main())
        losses.total = losses.total + (net->generator->bias * 0).abs().sqrt().sum();
      return losses;
    };
    return all;
  }

 private:
  const Group& group_;
};

// Every rank's share of the toy's items.
struct SharedToys : toy::ToySource {
  explicit SharedToys(const Group& group) : ToySource(8 / group.size()), group_(group) {}
  Batch batch(int64_t number) override {
    Batch batch = ToySource::batch(number * group_.size() + group_.rank());
    batch.number = number;
    return batch;
  }
  const Group& group_;
};

// Not a test of its own: one rank of the test below, in a process of its own.
TEST(Helper, OneRankThatMeetsBadNumbers) {
  const char* out = std::getenv("MELETE_TEST_BAD_NUMBERS");
  if (!out) GTEST_SKIP() << "runs only as a process of Ranks.BadNumbersOfOneAreSkippedByAll";
  set_threads(1);
  DistConfig dist;
  dist.heartbeat_seconds = 0.1;
  Group group(read_place(), dist);
  Poisoned task(group);
  SharedToys source(group);
  TrainerConfig config = toy::small_config(8);
  config.dist.shard_optimiser = group.size() == 4;
  TrainerParts parts{task, source};
  parts.group = &group;
  Trainer trainer(std::move(parts), config);
  nlohmann::json skipped = nlohmann::json::array();
  for (int64_t i = 0; i < config.steps; ++i)
    if (const StepReport report = trainer.step(); report.skipped)
      skipped.push_back({report.step, report.skip_reason});
  Checkpoint state = trainer.checkpoint();
  if (!group.main()) {  // what this rank holds, not what it was told to save
    state.tensors.clear();
    for (const auto& item : task.net->named_parameters()) state.tensors["model." + item.key()] = item.value();
  }
  state.meta["skipped"] = skipped;
  save_checkpoint(fmt::format("{}-{}.safetensors", out, group.rank()), state);
  group.finish();
}

TEST_F(Ranks, BadNumbersOfOneAreSkippedByAll) {
  for (const int64_t size : {1, 2, 4}) {
    SCOPED_TRACE(size);
    const int port = free_port();
    const std::string out = (folder_ / std::to_string(size)).string();
    for (const Ended& ended :
         run_ranks(size, "/proc/self/exe", {"--gtest_filter=Helper.OneRankThatMeetsBadNumbers"}, folder_,
                   [&](int64_t rank) {
                     Variables variables = rank_of(rank, size, port);
                     variables["MELETE_TEST_BAD_NUMBERS"] = out;
                     return variables;
                   }))
      ASSERT_EQ(ended.code, 0) << ended.output;
    const Checkpoint main = load_checkpoint(out + "-0.safetensors");
    ASSERT_EQ(main.meta["skipped"].size(), 2u) << main.meta["skipped"];
    EXPECT_EQ(main.meta["skipped"][0][0], 3);
    EXPECT_EQ(main.meta["skipped"][0][1], "generator: the loss is nan");
    EXPECT_EQ(main.meta["skipped"][1][0], 5);
    EXPECT_THAT(main.meta["skipped"][1][1].get<std::string>(), HasSubstr("the gradient norm of generator"));
    // Adam has counted the good steps alone, and of the phase that was bad.
    EXPECT_EQ(main.tensors.at("optimiser.generator.generator.weight.step").item<int64_t>(), 6);
    EXPECT_EQ(main.tensors.at("optimiser.judge.judge_a.weight.step").item<int64_t>(), 8);
    for (int64_t rank = 1; rank < size; ++rank) {
      const Checkpoint other = load_checkpoint(fmt::format("{}-{}.safetensors", out, rank));
      EXPECT_EQ(other.meta["skipped"], main.meta["skipped"]);
      EXPECT_EQ(other.tensors.size(), 6u);
      for (const auto& [name, tensor] : other.tensors)
        EXPECT_TRUE(tensor.equal(main.tensors.at(name))) << name;
    }
    for (const auto& [name, tensor] : main.tensors)
      EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << name;
    EXPECT_LT(difference((folder_ / "1-0.safetensors").string(), out + "-0.safetensors"), kRounding);
  }
}

// A toy whose samples take longer than anyone waits in a collective.
struct SlowSampler : toy::ToyTask {
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    toy::ToyTask::write_samples(batch, label, writer);
  }
};

// Not a test of its own: one rank of the test below, in a process of its own.
TEST(Helper, OneRankThatWaitsForSamples) {
  const char* out = std::getenv("MELETE_TEST_SLOW_SAMPLES");
  if (!out) GTEST_SKIP() << "runs only as a process of Ranks.WaitForSamplesLongerThanForEachOther";
  set_threads(1);
  DistConfig dist;
  dist.heartbeat_seconds = 0.1;
  dist.timeout_seconds = 0.75;
  Group group(read_place(), dist);
  SlowSampler task;
  SharedToys training(group), validation(group);
  TrainerConfig config = toy::small_config(4);
  config.sample_every = 2;
  std::optional<RunFolder> folder;
  if (group.main()) folder.emplace(out, StartMode::new_run);
  TrainerParts parts{task, training, &validation};
  parts.group = &group;
  parts.folder = folder ? &*folder : nullptr;
  Trainer trainer(std::move(parts), config);
  EXPECT_EQ(trainer.run(std::atomic<bool>(false)).outcome, Outcome::finished);
  EXPECT_EQ(task.sample_labels.size(), group.main() ? 4u : 0u);  // two times, online and averaged
  group.finish();
}

TEST_F(Ranks, WaitForSamplesLongerThanForEachOther) {
  const int port = free_port();
  for (const Ended& ended :
       run_ranks(3, "/proc/self/exe", {"--gtest_filter=Helper.OneRankThatWaitsForSamples"}, folder_,
                 [&](int64_t rank) {
                   Variables variables = rank_of(rank, 3, port);
                   variables["MELETE_TEST_SLOW_SAMPLES"] = (folder_ / "run").string();
                   return variables;
                 })) {
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_GT(ended.seconds, 2 * 2 * 1.5) << "nobody was slow, so this test has shown nothing";
  }
}

// Calls of c10d's that this process makes in one step.
int64_t collectives_of_a_step(Group& group, int64_t accumulate) {
  toy::ToyTask task({.draws = false, .buffers = false});
  SharedToys source(group);
  TrainerConfig config = toy::small_config(8);
  config.accumulate = accumulate;
  TrainerParts parts{task, source};
  parts.group = &group;
  Trainer trainer(std::move(parts), config);
  trainer.step();  // the first one also settles buckets
  static std::atomic<int64_t> calls;
  calls = 0;
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
        if (std::string_view(function.name()).starts_with("gloo:")) ++calls;
        return std::unique_ptr<at::ObserverContext>();
      }));
  trainer.step();
  at::removeCallback(handle);
  return calls;
}

// Not a test of its own: one rank of the test below, in a process of its own.
TEST(Helper, OneRankThatCountsCollectives) {
  if (!std::getenv("MELETE_TEST_COLLECTIVES"))
    GTEST_SKIP() << "runs only as a process of Ranks.AccumulationSendsGradientsOnce";
  set_threads(1);
  Group group(read_place(), {});
  const int64_t once = collectives_of_a_step(group, 1);
  EXPECT_GE(once, 2) << "one for each phase of the step at least";
  EXPECT_EQ(collectives_of_a_step(group, 4), once);
  group.finish();
}

TEST_F(Ranks, AccumulationSendsGradientsOnce) {
  const int port = free_port();
  for (const Ended& ended :
       run_ranks(2, "/proc/self/exe", {"--gtest_filter=Helper.OneRankThatCountsCollectives"}, folder_,
                 [&](int64_t rank) {
                   Variables variables = rank_of(rank, 2, port);
                   variables["MELETE_TEST_COLLECTIVES"] = "1";
                   return variables;
                 }))
    EXPECT_EQ(ended.code, 0) << ended.output;
}

}  // namespace dist_test
}  // namespace melete
