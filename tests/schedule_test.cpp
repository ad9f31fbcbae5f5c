// Learning rates: the curves we use, and the sequences that audiolm-pytorch really runs with.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "train/upstream_schedule.h"

namespace melete {
namespace {

ScheduleConfig of_kind(const std::string& kind, int64_t warmup = 0) {
  ScheduleConfig config;
  config.kind = kind;
  config.warmup_steps = warmup;
  return config;
}

TEST(Schedule, WarmupReachesTheRateExactly) {
  for (const char* kind : {"constant", "linear", "cosine", "cosine_restarts", "exponential", "step"}) {
    Schedule schedule(of_kind(kind, 7), 0.3, 100);
    EXPECT_DOUBLE_EQ(schedule.rate(0), 0.3 / 7) << kind;
    EXPECT_EQ(schedule.rate(6), 0.3) << kind;
    EXPECT_DOUBLE_EQ(schedule.rate(7), 0.3) << kind;
    for (int64_t step = 1; step < 7; ++step) EXPECT_GT(schedule.rate(step), schedule.rate(step - 1));
  }
}

TEST(Schedule, LinearAndCosineEndAtTheirMinimumAndStay) {
  for (const char* kind : {"linear", "cosine"}) {
    ScheduleConfig config = of_kind(kind, 5);
    config.minimum = 0.01;
    Schedule to_the_end(config, 0.5, 25);
    EXPECT_GT(to_the_end.rate(24), 0.01);
    for (const int64_t step : {25, 26, 45, 1000000}) EXPECT_EQ(to_the_end.rate(step), 0.01) << kind;
    EXPECT_NEAR(to_the_end.rate(15), 0.255, 1e-12) << kind;  // half way
    config.decay_steps = 4;
    Schedule shorter(config, 0.5, 25);
    EXPECT_EQ(shorter.rate(9), 0.01);
    for (int64_t step = 6; step < 30; ++step) EXPECT_LE(shorter.rate(step), shorter.rate(step - 1));
  }
}

TEST(Schedule, RestartsGrowAndStartAtTheFullRate) {
  ScheduleConfig config = of_kind("cosine_restarts");
  config.period = 4;
  config.period_growth = 2;
  Schedule schedule(config, 1, 100);
  for (const int64_t start : {0, 4, 12, 28}) EXPECT_DOUBLE_EQ(schedule.rate(start), 1);
  for (const int64_t middle : {2, 8, 20, 44}) EXPECT_NEAR(schedule.rate(middle), 0.5, 1e-12);
}

TEST(Schedule, ExponentialAndStepStopAtTheMinimum) {
  ScheduleConfig config = of_kind("exponential", 2);
  config.gamma = 0.5;
  config.minimum = 0.1;
  Schedule exponential(config, 1, 100);
  EXPECT_DOUBLE_EQ(exponential.rate(4), 0.25);
  EXPECT_EQ(exponential.rate(50), 0.1);
  config = of_kind("step");
  config.gamma = 0.5;
  config.step_size = 3;
  Schedule step(config, 1, 100);
  EXPECT_EQ(step.rate(2), 1);
  EXPECT_EQ(step.rate(3), 0.5);
  EXPECT_EQ(step.rate(8), 0.25);
}

TEST(Schedule, IsAFunctionOfTheStepAlone) {
  for (const bool upstream : {false, true}) {
    ScheduleConfig config = of_kind("cosine", 3);
    config.upstream_warmup = upstream;
    config.decay_steps = 9;
    Schedule forward(config, 1, 30), jumping(config, 1, 30);
    std::vector<double> rates;
    for (int64_t step = 0; step < 30; ++step) rates.push_back(forward.rate(step));
    for (const int64_t step : {29, 0, 7, 7, 3, 20})
      EXPECT_EQ(jumping.rate(step), rates[static_cast<size_t>(step)]);
  }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Schedule(of_kind("sine"), 1, 10), Error);
  ScheduleConfig config = of_kind("cosine");
  config.minimum = 2;
  EXPECT_THROW(Schedule(config, 1, 10), Error);
  config = of_kind("constant", 0);
  config.upstream_warmup = true;
  EXPECT_THROW(Schedule(config, 1, 10), Error);
}

TEST(UpstreamSchedule, TheDefaultStaysAtTheRateOverTheWarmup) {
  ScheduleConfig config = of_kind("constant", 5);
  config.upstream_warmup = true;
  Schedule schedule(config, 0.01, 100);
  const double expected[] = {0.002, 0.0008, 0.0012, 0.0016, 0.002, 0.002, 0.002};
  for (int64_t step = 0; step < 7; ++step) EXPECT_NEAR(schedule.rate(step), expected[step], 1e-15);
}

// Closed forms of PyTorch's recursive schedulers, without warm-up (1 step: factor 1).
TEST(UpstreamSchedule, RecursionsFollowTheirClosedForms) {
  UpstreamSchedule exponential(1, 1, TorchScheduler("ExponentialLR", {{"gamma", 0.9}}));
  UpstreamSchedule cosine(1, 1, TorchScheduler("CosineAnnealingLR", {{"T_max", 8}, {"eta_min", 0.2}}));
  UpstreamSchedule steps(1, 1, TorchScheduler("MultiStepLR", {{"milestones", {3, 5, 5}}, {"gamma", 0.5}}));
  UpstreamSchedule polynomial(1, 1, TorchScheduler("PolynomialLR", {{"total_iters", 10}, {"power", 2}}));
  UpstreamSchedule restarts(1, 1, TorchScheduler("CosineAnnealingWarmRestarts", {{"T_0", 3}, {"T_mult", 2}}));
  for (int64_t step = 0; step < 30; ++step) {
    const auto t = static_cast<double>(step);
    EXPECT_NEAR(exponential.rate(step), std::pow(0.9, t), 1e-12);
    EXPECT_NEAR(cosine.rate(step), 0.2 + 0.8 * (1 + std::cos(M_PI * t / 8)) / 2, 1e-9) << step;
    EXPECT_NEAR(steps.rate(step), step < 3 ? 1 : step < 5 ? 0.5 : 0.125, 1e-12);
    EXPECT_NEAR(polynomial.rate(step), std::pow(std::max(0.0, 1 - t / 10), 2), 1e-12);
  }
  EXPECT_DOUBLE_EQ(restarts.rate(3), 1);
  EXPECT_NEAR(restarts.rate(6), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(restarts.rate(9), 1);
}

// The scheduler's first factor is lost, because the warm-up restores the rate it remembered before it.
TEST(UpstreamSchedule, LinearStartsFromTheUndampenedRate) {
  UpstreamSchedule linear(0.01, 2, TorchScheduler("LinearLR", {{"start_factor", 0.5}, {"total_iters", 4}}));
  EXPECT_NEAR(linear.rate(0), 0.01 / 2 * 0.5, 1e-15);
  EXPECT_NEAR(linear.rate(1), 0.01 * (1 + 0.5 / (4 * 0.5)), 1e-15);
  EXPECT_NEAR(linear.rate(4), 0.02, 1e-12);
  EXPECT_NEAR(linear.rate(9), 0.02, 1e-12);
}

TEST(UpstreamSchedule, NamesWhatItDoesNotKnow) {
  EXPECT_THROW(TorchScheduler("OneCycle", {}), Error);
  EXPECT_THROW(TorchScheduler("StepLR", {{"size", 3}}), Error);
  EXPECT_THROW(TorchScheduler("StepLR", nlohmann::ordered_json::object()), Error);
}

}  // namespace
}  // namespace melete
