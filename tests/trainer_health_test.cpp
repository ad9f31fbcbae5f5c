// The training loop around its steps: bad numbers, checkpoints, stopping, validation, samples.
#include <gtest/gtest.h>

#include <atomic>

#include "toy_task.h"
#include "train/trainer.h"

namespace melete {
namespace trainer_health_test {

using namespace toy;

const std::atomic<bool> never{false};

bool all_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors)
    if (!at::isfinite(tensor).all().item<bool>()) return false;
  return true;
}

TEST(TrainerHealth, ABadLossIsSkippedAndCounted) {
  ToyTask task;
  ToySource source;
  task.poison = [](const StepContext& context) {
    return context.step == 2 ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  };
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.reporter = &recorder;
  TrainerConfig config = small_config(6);
  config.log_every = 100;  // a skipped step is reported all the same
  Trainer trainer(parts, config);
  at::Tensor before, after;
  task.watch = [&](const std::string& phase, const Batch&, const StepContext& context) {
    if (phase != "generator" || context.micro_batch != 0) return;
    if (context.step == 2) before = task.net->generator->weight.detach().clone();
    if (context.step == 3) after = task.net->generator->weight.detach().clone();
  };
  const RunResult result = trainer.run(never);
  EXPECT_EQ(result.outcome, Outcome::finished);
  EXPECT_TRUE(before.equal(after));
  EXPECT_EQ(trainer.health().bad_total(), 1);
  EXPECT_FALSE(trainer.health().in_bad_streak());
  ASSERT_EQ(recorder.steps.size(), 2u);
  EXPECT_TRUE(recorder.steps[0].skipped);
  EXPECT_EQ(recorder.steps[0].step, 3);
  EXPECT_NE(recorder.steps[0].skip_reason.find("generator"), std::string::npos);
  EXPECT_EQ(recorder.steps[1].skipped_total, 1);
  EXPECT_TRUE(all_finite(trainer.checkpoint()));
  // The other phase moved: its numbers were sound. Adam counts its own steps.
  const Checkpoint saved = trainer.checkpoint();
  EXPECT_EQ(saved.tensors.at("optimiser.generator.generator.weight.step").item<int64_t>(), 5);
  EXPECT_EQ(saved.tensors.at("optimiser.judge.judge_a.weight.step").item<int64_t>(), 6);
}

TEST(TrainerHealth, AnInfiniteGradientUnderAFiniteLossIsSkipped) {
  struct Steep : ToyTask {
    std::vector<Phase> phases() override {
      auto all = ToyTask::phases();
      all.resize(1);
      all[0].loss = [this](const Batch&, const StepContext&) {
        // sqrt has value 0 and gradient infinity at 0
        return Losses{(net->generator->bias * 0).abs().sqrt().sum() + 1.0, {}};
      };
      return all;
    }
  } task;
  ToySource source;
  Trainer trainer({task, source}, small_config(3));
  const StepReport report = trainer.step();
  EXPECT_TRUE(report.skipped);
  EXPECT_NE(report.skip_reason.find("gradient norm"), std::string::npos) << report.skip_reason;
  EXPECT_TRUE(all_finite(trainer.checkpoint()));
}

TEST(TrainerHealth, BrokenDataRollsBackAndGoesOnElsewhere) {
  TemporaryFolder folder;
  RunFolder run(folder.run(), StartMode::new_run);
  ToyTask task;
  ToySource source;
  // Steps take 4 batches: steps 6 to 9 see broken ones, which also poison the running mean for good.
  source.broken = [](int64_t number) { return number >= 24 && number < 40; };
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.folder = &run;
  parts.reporter = &recorder;
  TrainerConfig config = small_config(15);
  config.save_every = 5;
  config.health.max_bad_steps = 3;
  Trainer trainer(parts, config);
  const RunResult result = trainer.run(never);
  EXPECT_EQ(result.outcome, Outcome::finished) << result.reason;
  EXPECT_EQ(result.step, 15);
  EXPECT_EQ(trainer.health().rollbacks(), 1);
  EXPECT_EQ(trainer.health().bad_total(), 4);
  EXPECT_TRUE(all_finite(trainer.checkpoint()));
  ASSERT_EQ(recorder.warnings.size(), 1u);
  EXPECT_NE(recorder.warnings[0].find("step 5"), std::string::npos) << recorder.warnings[0];
  // 20 batches for 5 good steps, 20 for one good and four bad ones, then 40 for the ten that follow.
  EXPECT_EQ(trainer.batches_taken(), 80);
  EXPECT_EQ(trainer.checkpoint().tensors.at("trainer.salt").item<int64_t>(), 1);
}

TEST(TrainerHealth, NoCheckpointIsMadeInABadStreakExceptWhenStopped) {
  TemporaryFolder folder;
  RunFolder run(folder.run(), StartMode::new_run);
  ToyTask task;
  ToySource source;
  task.poison = [](const StepContext& context) {
    return context.step == 3 || context.step == 4 ? std::numeric_limits<double>::infinity() : 0.0;
  };
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.folder = &run;
  parts.reporter = &recorder;
  TrainerConfig config = small_config(8);
  config.save_every = 4;
  Trainer trainer(parts, config);
  trainer.run(never);
  EXPECT_EQ(recorder.saves, (std::vector<int64_t>{6, 8}));  // 4 was due but bad, and so was 5
}

TEST(TrainerHealth, StopsWithTheReasonWhenGoingBackDoesNotHelp) {
  TemporaryFolder folder;
  RunFolder run(folder.run(), StartMode::new_run);
  ToyTask task;
  ToySource source;
  task.poison = [](const StepContext& context) {
    return context.step >= 4 ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  };
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.folder = &run;
  parts.reporter = &recorder;
  TrainerConfig config = small_config(100);
  config.save_every = 2;
  config.health.max_bad_steps = 2;
  config.health.max_rollbacks = 2;
  Trainer trainer(parts, config);
  const RunResult result = trainer.run(never);
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_EQ(trainer.health().rollbacks(), 2);
  EXPECT_NE(result.reason.find("not finite"), std::string::npos);
  EXPECT_NE(result.reason.find("generator: the loss is nan"), std::string::npos) << result.reason;
  ASSERT_EQ(recorder.reasons.size(), 1u);
  EXPECT_EQ(run.checkpoints().front().step, 4);  // nothing bad was saved over the good
}

TEST(TrainerHealth, WithoutACheckpointItStopsAtOnce) {
  ToyTask task;
  ToySource source;
  task.poison = [](const StepContext&) { return std::numeric_limits<double>::quiet_NaN(); };
  TrainerConfig config = small_config(100);
  config.health.max_bad_steps = 0;
  Trainer trainer({task, source}, config);
  const RunResult result = trainer.run(never);
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_EQ(result.step, 1);
  EXPECT_NE(result.reason.find("no good checkpoint"), std::string::npos);
}

TEST(TrainerRun, SavesEveryKAndAtTheEndAndPrunes) {
  TemporaryFolder folder;
  RunFolder run(folder.run(), StartMode::new_run);
  ToyTask task;
  ToySource source;
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.folder = &run;
  parts.reporter = &recorder;
  TrainerConfig config = small_config(11);
  config.save_every = 2;
  config.keep_last = 2;
  config.keep_every = 4;
  Trainer(parts, config).run(never);
  EXPECT_EQ(recorder.saves, (std::vector<int64_t>{2, 4, 6, 8, 10, 11}));
  std::vector<int64_t> left;
  for (const auto& entry : run.checkpoints()) left.push_back(entry.step);
  EXPECT_EQ(left, (std::vector<int64_t>{11, 10, 8, 4}));
}

TEST(TrainerRun, TheStopFlagFinishesTheStepAndResumeGoesOnExactly) {
  const TrainerConfig config = small_config(9);
  ToyTask whole_task;
  ToySource whole_source;
  Trainer whole({whole_task, whole_source}, config);
  EXPECT_EQ(whole.run(never).outcome, Outcome::finished);

  TemporaryFolder folder;
  {
    RunFolder run(folder.run(), StartMode::new_run);
    ToyTask task;
    ToySource source;
    std::atomic<bool> stop{false};
    Recorder recorder;
    recorder.on_step = [&](const StepReport& report) { stop = report.step == 4; };
    TrainerParts parts{task, source};
    parts.folder = &run;
    parts.reporter = &recorder;
    const RunResult result = Trainer(parts, config).run(stop);
    EXPECT_EQ(result.outcome, Outcome::stopped);
    EXPECT_EQ(result.step, 4);
    EXPECT_EQ(recorder.saves, (std::vector<int64_t>{4}));
  }
  RunFolder run(folder.run(), StartMode::resume);
  ToyTask task;
  ToySource source;
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.folder = &run;
  parts.reporter = &recorder;
  Trainer trainer(parts, config);
  ASSERT_TRUE(trainer.resume());
  EXPECT_EQ(trainer.run(never).outcome, Outcome::finished);
  EXPECT_EQ(recorder.about.resumed_from_step, 4);
  EXPECT_EQ(recorder.about.parameter_counts.size(), 2u);
  EXPECT_EQ(recorder.steps.front().step, 5);
  const Checkpoint a = whole.checkpoint(), b = trainer.checkpoint();
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(name))) << name;
  // A run that is done stays done.
  const size_t saves = recorder.saves.size();
  EXPECT_EQ(trainer.run(never).outcome, Outcome::finished);
  EXPECT_EQ(recorder.saves.size(), saves);
}

TEST(TrainerRun, ResumeWithoutACheckpointSaysSo) {
  TemporaryFolder folder;
  RunFolder run(folder.run(), StartMode::new_run);
  ToyTask task;
  ToySource source;
  TrainerParts parts{task, source};
  parts.folder = &run;
  EXPECT_FALSE(Trainer(parts, small_config(3)).resume());
  EXPECT_THROW(Trainer({task, source}, small_config(3)).resume(), Error);
}

TEST(TrainerRun, ValidatesBothWeightsAndReturnsToTraining) {
  ToyTask task;
  ToySource source, held_out(3, 99);
  Recorder recorder;
  TrainerParts parts{task, source};
  parts.validation = &held_out;
  parts.reporter = &recorder;
  TrainerConfig config = small_config(8);
  config.validate_every = 4;
  config.validate_batches = 3;
  Trainer trainer(parts, config);
  bool training = true;
  task.watch = [&](const std::string&, const Batch&, const StepContext& context) {
    training &= task.net->is_training() && task.net->generator->is_training() && context.training;
    EXPECT_FALSE(task.net->asleep->is_training());  // what slept before still sleeps
  };
  trainer.run(never);
  EXPECT_TRUE(training);
  ASSERT_EQ(recorder.validations.size(), 4u);
  EXPECT_EQ(recorder.validations[0].label, "online");
  EXPECT_EQ(recorder.validations[1].label, "ema");
  EXPECT_EQ(recorder.validations[0].step, 4);
  for (const bool was_training : task.validation_modes) EXPECT_FALSE(was_training);
  EXPECT_EQ(held_out.asked, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  // The figure is the mean over the batches.
  const std::map<std::string, double> last(recorder.validations[2].losses.begin(),
                                           recorder.validations[2].losses.end());
  double sum = 0;
  at::NoGradGuard guard;
  task.net->eval();
  for (int64_t i = 0; i < 3; ++i) {
    const Batch batch = held_out.batch(i);
    sum += at::mse_loss(task.net->generator->forward(batch["wave"]), batch["wave"]).item<double>();
  }
  EXPECT_NEAR(last.at("distance"), sum / 3, 1e-6);
  EXPECT_NEAR(last.at("loss"), sum / 3, 1e-6);
}

TEST(TrainerRun, ValidationAndSamplesDoNotChangeTheTraining) {
  const auto train = [](bool with) {
    TemporaryFolder folder;
    RunFolder run(folder.run(), StartMode::new_run);
    ToyTask task;
    ToySource source, held_out(3, 99);
    TrainerParts parts{task, source};
    parts.validation = &held_out;
    parts.folder = &run;
    TrainerConfig config = small_config(7);
    config.validate_every = with ? 2 : 0;
    config.sample_every = with ? 3 : 0;
    Trainer trainer(parts, config);
    trainer.run(never);
    if (with) {
      EXPECT_EQ(task.sample_labels, (std::vector<std::string>{"online", "ema", "online", "ema"}));
      EXPECT_EQ(task.sample_batches, (std::vector<int64_t>{0, 0, 0, 0}));
      EXPECT_NE(task.sample_values[2], task.sample_values[3]);  // the average was in the model
    }
    Checkpoint out = trainer.checkpoint();
    for (auto& [name, tensor] : out.tensors) tensor = tensor.clone();
    return out;
  };
  const Checkpoint a = train(false), b = train(true);
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(name))) << name;
}

TEST(TrainerRun, AFailingSampleLeavesTheModelAsItWas) {
  TemporaryFolder folder;
  RunFolder run(folder.run(), StartMode::new_run);
  ToyTask task;
  ToySource source, held_out;
  TrainerParts parts{task, source};
  parts.validation = &held_out;
  parts.folder = &run;
  Trainer trainer(parts, small_config(7));
  for (int i = 0; i < 5; ++i) trainer.step();
  const at::Tensor weight = task.net->generator->weight.detach().clone();
  task.fail_samples = true;
  EXPECT_THROW(trainer.write_samples(), Error);
  EXPECT_TRUE(task.net->is_training());
  EXPECT_TRUE(task.net->generator->weight.detach().equal(weight));
}

}  // namespace trainer_health_test
}  // namespace melete
