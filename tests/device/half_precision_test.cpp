// fp16 with loss scaling: steps whose gradients overflow are skipped and counted, the scale is halved, and a
// resumed run is the run that was not interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "data/batch.h"
#include "measure/noise_batches.h"
#include "run/checkpoint.h"
#include "train/trainer.h"

namespace melete::device_half_test {

// One matrix, and a loss so large that its gradients are beyond fp16 at the first scales.
class LoudTask : public Task {
 public:
  LoudTask() { torch::nn::init::constant_(net_->weight, 0.01); }
  std::string name() const override { return "loud"; }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Phase> phases() override {
    Phase phase;
    phase.name = "matrix";
    NamedTensors all;
    for (const auto& item : net_->named_parameters()) all.emplace_back(item.key(), item.value());
    phase.groups = {{"matrix", all}};
    phase.loss = [this](const Batch& batch, const StepContext&) { return losses(batch); };
    return {phase};
  }
  nlohmann::ordered_json config() const override { return {}; }
  Losses validate(const Batch& batch, const StepContext&) override { return losses(batch); }
  void write_samples(const Batch&, const std::string&, SampleWriter&) override {}

  at::ScalarType computed_in = at::kFloat;

 private:
  Losses losses(const Batch& batch) {
    const at::Tensor x = batch["wave"], y = net_->forward(x);
    computed_in = y.scalar_type();
    return {(y.to(at::kFloat) - x).square().mean() * 4096, {}};
  }
  torch::nn::Linear net_{16, 16};
};

struct HalfRun {
  HalfRun() : batches(some()), trainer({task, batches}, config()) {}

  static Batch some() {
    Batch batch;
    torch::manual_seed(4);
    batch.set("wave", at::randn({8, 16}));
    return batch;
  }
  static TrainerConfig config() {
    TrainerConfig config;
    config.device = "cuda";
    config.precision = "fp16";
    config.steps = 100;
    config.ema.enabled = false;
    return config;
  }

  LoudTask task;
  NoiseBatches batches;
  Trainer trainer;
};

double scale_in(const Checkpoint& checkpoint) {
  return checkpoint.tensors.at("loss_scale.scale").item<double>();
}

TEST(HalfPrecision, OverflowsAreSkippedCountedAndHalveTheScale) {
  HalfRun run;
  const at::Tensor before = run.task.model().parameters().front().detach().cpu().clone();
  int64_t skipped = 0;
  StepReport report = run.trainer.step();
  EXPECT_EQ(run.task.computed_in, at::kHalf);
  while (report.skipped && skipped < 16) {
    ++skipped;
    EXPECT_THAT(report.skip_reason, ::testing::HasSubstr("gradient norm"));
    EXPECT_EQ(report.skipped_total, skipped);
    EXPECT_EQ(scale_in(run.trainer.checkpoint()), 65536 / std::exp2(skipped));
    EXPECT_TRUE(run.task.model().parameters().front().detach().cpu().equal(before)) << "a skipped step moved";
    report = run.trainer.step();
  }
  EXPECT_GE(skipped, 2);
  EXPECT_FALSE(report.skipped) << report.skip_reason;
  EXPECT_EQ(report.skipped_total, skipped);
  EXPECT_EQ(scale_in(run.trainer.checkpoint()), 65536 / std::exp2(skipped));
  EXPECT_FALSE(run.task.model().parameters().front().detach().cpu().equal(before));
  // What it learns: the same matrix as in float32, nearly.
  const double first = report.losses.front().second;
  for (int i = 0; i < 20; ++i) report = run.trainer.step();
  EXPECT_LT(report.losses.front().second, first);
}

TEST(HalfPrecision, AResumedRunIsTheSameRun) {
  HalfRun whole, first, second;
  for (int i = 0; i < 12; ++i) whole.trainer.step();
  for (int i = 0; i < 7; ++i) first.trainer.step();
  second.trainer.load(first.trainer.checkpoint());
  for (int i = 0; i < 5; ++i) second.trainer.step();
  const Checkpoint a = whole.trainer.checkpoint(), b = second.trainer.checkpoint();
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(name))) << name;
  EXPECT_LT(scale_in(a), 65536);
}

}  // namespace melete::device_half_test
