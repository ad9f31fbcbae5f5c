// What the training loop promises: exact resume, accumulation, phases that mind their own parameters.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/engine.h"
#include "toy_task.h"

namespace melete {
namespace trainer_test {

using namespace toy;

// Every tensor of two checkpoints, bit for bit.
void expect_same(const Checkpoint& a, const Checkpoint& b, const std::string& what) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_EQ(b.tensors.count(name), 1u) << what << " " << name;
    EXPECT_TRUE(tensor.equal(b.tensors.at(name))) << what << ": " << name;
  }
}

Checkpoint copied(Checkpoint checkpoint) {
  for (auto& [name, tensor] : checkpoint.tensors) tensor = tensor.clone();
  return checkpoint;
}

TEST(Trainer, ResumeEqualsUninterruptedBitForBit) {
  for (const bool upstream_clip : {false, true})
    for (const bool same_batches : {false, true}) {
      Settings settings;
      settings.upstream_clip = upstream_clip;
      settings.same_batches = same_batches;
      const TrainerConfig config = small_config(11);
      ToyTask whole_task(settings);
      ToySource whole_source;
      Trainer whole({whole_task, whole_source}, config);
      for (int i = 0; i < 11; ++i) whole.step();
      const Checkpoint expected = copied(whole.checkpoint());

      for (const int cut : {1, 2, 4, 7, 10}) {  // before, at and between updates of the average
        TemporaryFolder folder;
        const std::string path = folder.path + "/cut.safetensors";
        {
          ToyTask task(settings);
          ToySource source;
          Trainer first({task, source}, config);
          for (int i = 0; i < cut; ++i) first.step();
          save_checkpoint(path, first.checkpoint());
        }
        ToyTask task(settings);
        ToySource source;
        Trainer second({task, source}, config);
        second.load(load_checkpoint(path));
        EXPECT_EQ(second.steps_done(), cut);
        for (int i = cut; i < 11; ++i) second.step();
        expect_same(expected, second.checkpoint(),
                    fmt::format("cut at {}, upstream clip {}", cut, upstream_clip));
        EXPECT_EQ(source.asked.front(), cut * (same_batches ? 2 : 4));
      }
    }
}

// Rates and, where a curve moves it, the optimiser's momentum.
TEST(Trainer, ResumeIsExactWithEveryKindOfSchedule) {
  std::set<double> losses;
  for (const std::string& kind : schedule_kinds()) {
    SCOPED_TRACE(kind);
    Settings settings;
    settings.schedule.kind = kind;
    settings.schedule.milestones = {2, 5};
    settings.schedule.step_size = 2;
    settings.schedule.period = 4;
    settings.schedule.power = 2;
    settings.schedule.table = {"2:0.5", "5:0.1"};
    settings.schedule.cyclic.up_steps = 2;
    settings.schedule.cyclic.cycle_momentum = true;
    const TrainerConfig config = small_config(9);
    ToyTask whole_task(settings), first_task(settings), second_task(settings);
    ToySource whole_source, first_source, second_source;
    Trainer whole({whole_task, whole_source}, config), first({first_task, first_source}, config),
        second({second_task, second_source}, config);
    StepReport last;
    for (int i = 0; i < 9; ++i) last = whole.step();
    for (int i = 0; i < 5; ++i) first.step();
    second.load(copied(first.checkpoint()));
    for (int i = 5; i < 9; ++i) second.step();
    expect_same(whole.checkpoint(), second.checkpoint(), kind);
    losses.insert(last.losses.front().second);
  }
  EXPECT_EQ(losses.size(), schedule_kinds().size()) << "the curves do not reach the weights";
}

TEST(Trainer, MomentumFollowsTheCycle) {
  const auto weights = [](bool cycle_momentum) {
    Settings settings;
    settings.schedule.kind = "one_cycle";
    settings.schedule.one_cycle.cycle_momentum = cycle_momentum;
    ToyTask task(settings);
    ToySource source;
    Trainer trainer({task, source}, small_config(6));
    for (int i = 0; i < 6; ++i) trainer.step();
    return task.net->generator->weight.detach().clone();
  };
  EXPECT_FALSE(weights(true).equal(weights(false)));
}

TEST(Trainer, SeedAndStepDecideTheDraws) {
  const auto weights = [](int64_t seed) {
    TrainerConfig config = small_config(4);
    config.seed = seed;
    ToyTask task;
    ToySource source;
    Trainer trainer({task, source}, config);
    for (int i = 0; i < 4; ++i) trainer.step();
    return task.net->generator->weight.detach().clone();
  };
  EXPECT_TRUE(weights(1).equal(weights(1)));
  EXPECT_FALSE(weights(1).equal(weights(2)));
}

TEST(Trainer, AccumulationEqualsOneLargeBatch) {
  Settings settings;
  settings.draws = false;
  settings.buffers = false;  // a running mean moves once a micro-batch
  const auto train = [&](int64_t accumulate, int64_t size) {
    TrainerConfig config = small_config(6);
    config.accumulate = accumulate;
    ToyTask task(settings);
    ToySource source(size);
    Trainer trainer({task, source}, config);
    StepReport last;
    for (int i = 0; i < 6; ++i) last = trainer.step();
    return std::make_pair(copied(trainer.checkpoint()), last);
  };
  const auto [parts, parts_report] = train(4, 2);
  const auto [whole, whole_report] = train(1, 8);
  for (const char* name :
       {"model.generator.weight", "model.generator.bias", "model.judge_a.weight", "model.judge_b.bias"})
    EXPECT_LT((parts.tensors.at(name) - whole.tensors.at(name)).abs().max().item<double>(), 1e-5) << name;
  for (size_t i = 0; i < whole_report.losses.size(); ++i)
    EXPECT_NEAR(parts_report.losses[i].second, whole_report.losses[i].second, 1e-5)
        << whole_report.losses[i].first;
  for (size_t i = 0; i < whole_report.gradient_norms.size(); ++i)
    EXPECT_NEAR(parts_report.gradient_norms[i].second, whole_report.gradient_norms[i].second, 1e-5);
}

TEST(Trainer, OnlyThePhasesOwnParametersGetGradients) {
  ToyTask task;
  ToySource source;
  std::vector<std::string> phases;
  task.watch = [&](const std::string& phase, const Batch&, const StepContext&) {
    phases.push_back(phase);
    for (const auto& [name, tensor] : task.named("generator."))
      EXPECT_EQ(tensor.requires_grad(), phase == "generator") << name;
    for (const auto& [name, tensor] : task.named("judge")) {
      EXPECT_EQ(tensor.requires_grad(), phase == "judge") << name;
      if (phase == "generator") {
        EXPECT_FALSE(tensor.grad().defined());
      }
    }
  };
  Trainer trainer({task, source}, small_config(2));
  trainer.step();
  EXPECT_EQ(phases, (std::vector<std::string>{"generator", "generator", "judge", "judge"}));
  for (const auto& item : task.net->named_parameters())
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
}

TEST(Trainer, NormMayCoverTheDiscriminatorsAndTheirStaleGradients) {
  Settings settings;
  settings.upstream_clip = true;
  ToyTask task(settings), plain;
  ToySource source, plain_source;
  Trainer trainer({task, source}, small_config(3)), ordinary({plain, plain_source}, small_config(3));
  const StepReport first = trainer.step();
  double stale = 0, clipped = 0;
  for (const auto& [name, tensor] : task.named("judge")) stale += tensor.grad().pow(2).sum().item<double>();
  for (const auto& [name, norm] : first.gradient_norms)
    if (name.starts_with("judge")) clipped += std::pow(std::min(norm, 1.0), 2);
  EXPECT_GT(stale, 0);
  EXPECT_NEAR(stale, clipped, 1e-4 * clipped) << "what stays behind is what the judge's clipping left";
  ordinary.step();
  const double with = trainer.step().gradient_norms.front().second;
  const double without = ordinary.step().gradient_norms.front().second;
  EXPECT_GT(with, without);
}

TEST(Trainer, PhasesShareBatchesOnlyWhenTold) {
  for (const bool same : {false, true}) {
    Settings settings;
    settings.same_batches = same;
    ToyTask task(settings);
    ToySource source;
    std::vector<int64_t> numbers;
    task.watch = [&](const std::string&, const Batch& batch, const StepContext&) {
      numbers.push_back(batch.number);
    };
    Trainer trainer({task, source}, small_config(2));
    trainer.step();
    trainer.step();
    EXPECT_EQ(numbers, same ? (std::vector<int64_t>{0, 1, 0, 1, 2, 3, 2, 3})
                            : (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST(Trainer, ReportsLossesNormsAndRatesByName) {
  ToyTask task;
  ToySource source;
  Trainer trainer({task, source}, small_config(9));
  const StepReport report = trainer.step();
  EXPECT_EQ(report.step, 1);
  EXPECT_EQ(report.steps_total, 9);
  std::map<std::string, double> losses(report.losses.begin(), report.losses.end());
  for (const char* name : {"generator.loss", "distance", "judge.loss", "judge_a", "judge_b"})
    EXPECT_EQ(losses.count(name), 1u) << name;
  EXPECT_NEAR(losses["judge.loss"], losses["judge_a"] + losses["judge_b"], 1e-6);
  ASSERT_EQ(report.gradient_norms.size(), 3u);
  EXPECT_EQ(report.gradient_norms[1].first, "judge.a");
  EXPECT_NEAR(report.learning_rates[0].second, 0.01 / 3, 1e-12);
  EXPECT_EQ(report.chance_levels.at("distance"), 1.0);
  EXPECT_GT(report.items_per_second, 0);
}

TEST(Trainer, ClippingBoundsWhatMoves) {
  // Adam's first step does not depend on the gradient's size, so look at the moment it leaves.
  Settings settings;
  settings.clip_norm = 1e-3;
  ToyTask task(settings);
  ToySource source;
  Trainer trainer({task, source}, small_config(3));
  const StepReport report = trainer.step();
  ASSERT_GT(report.gradient_norms[0].second, 1e-2);
  const Checkpoint saved = trainer.checkpoint();
  double squared = 0;
  for (const char* name : {"weight", "bias"})
    squared += saved.tensors.at(fmt::format("optimiser.generator.generator.{}.first", name))
                   .pow(2)
                   .sum()
                   .item<double>();
  EXPECT_NEAR(std::sqrt(squared), 0.1 * 1e-3, 1e-6);
}

TEST(Trainer, Bf16RunsAndKeepsWeightsInFloat) {
  setenv("MELETE_BF16", "always", 1);  // whatever this processor has
  TrainerConfig config = small_config(3);
  config.precision = "bf16";
  ToyTask task;
  ToySource source;
  at::ScalarType seen = at::kDouble;
  task.watch = [&](const std::string&, const Batch& batch, const StepContext&) {
    seen = at::matmul(batch["wave"], at::ones({4, 4})).scalar_type();
  };
  Trainer trainer({task, source}, config);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(trainer.step().skipped);
  EXPECT_EQ(seen, at::kBFloat16);
  unsetenv("MELETE_BF16");
  // Where it would be slower, float32 is taken.
  Trainer here({task, source}, config);
  here.step();
  EXPECT_EQ(seen, has_bf16_instructions(engine_info()) ? at::kBFloat16 : at::kFloat);
  EXPECT_EQ(task.net->generator->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type(), at::kFloat);  // off again outside
}

TEST(Trainer, TwoTrainersInOneProcessDoNotDisturbEachOther) {
  ToyTask alone_task, left_task, right_task;
  ToySource alone_source, left_source, right_source;
  Trainer alone({alone_task, alone_source}, small_config(5));
  Trainer left({left_task, left_source}, small_config(5)), right({right_task, right_source}, small_config(5));
  for (int i = 0; i < 5; ++i) alone.step();
  for (int i = 0; i < 5; ++i) {
    left.step();
    right.step();
  }
  expect_same(alone.checkpoint(), left.checkpoint(), "left");
  expect_same(alone.checkpoint(), right.checkpoint(), "right");
}

TEST(Trainer, RefusesForeignAndChangedCheckpoints) {
  ToyTask task;
  ToySource source;
  Trainer trainer({task, source}, small_config(3));
  trainer.step();
  const Checkpoint good = copied(trainer.checkpoint());
  Checkpoint bad = good;
  bad.meta["task"] = "soundstream";
  EXPECT_THROW(trainer.load(bad), Error);
  bad = good;
  bad.tensors.erase("model.generator.weight");
  EXPECT_THROW(trainer.load(bad), Error);
  bad = good;
  bad.tensors["model.generator.weight"] = at::zeros({4, 5});
  EXPECT_THROW(trainer.load(bad), Error);
  bad = good;
  bad.tensors["model.generator.extra"] = at::zeros({1});
  EXPECT_THROW(trainer.load(bad), Error);
  bad = good;
  bad.tensors.erase("trainer.batches");
  EXPECT_THROW(trainer.load(bad), Error);
  trainer.load(good);
  expect_same(good, trainer.checkpoint(), "loaded again");
  EXPECT_EQ(good.meta.at("parameters").at("generator").get<int64_t>(), 20);
  EXPECT_EQ(good.meta.at("config").at("toy").get<bool>(), true);
}

TEST(Trainer, RefusesPhasesThatWouldNotBeSaved) {
  struct Stray : ToyTask {
    std::vector<Phase> phases() override {
      auto all = ToyTask::phases();
      all[0].groups[0].parameters[0].second = at::zeros({4, 4}).set_requires_grad(true);
      return all;
    }
  } stray;
  ToySource source;
  EXPECT_THROW(Trainer({stray, source}, small_config(3)), Error);
  TrainerConfig config = small_config(3);
  config.device = "tpu";
  ToyTask task;
  EXPECT_THROW(Trainer({task, source}, config), Error);
}

}  // namespace trainer_test
}  // namespace melete
