// Learning rates: the curves we use, and the sequences that audiolm-pytorch really runs with.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "train/upstream_schedule.h"

namespace melete {
namespace schedule_test {

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

TEST(Schedule, WarmupRisesFromWhereItIsTold) {
  ScheduleConfig config = of_kind("cosine", 4);
  config.warmup_from = 0.1;
  Schedule schedule(config, 0.5, 100);
  const std::vector<double> expected = {0.2, 0.3, 0.4, 0.5, 0.5};
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(schedule.rate(static_cast<int64_t>(step)), expected[step], 1e-12) << step;
  config.warmup_from = 0.6;  // above the learning rate
  EXPECT_THROW(Schedule(config, 0.5, 100), Error);
  config.warmup_from = 0.1;
  config.upstream_warmup = true;
  EXPECT_THROW(Schedule(config, 0.5, 100), Error);
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

// The rates that torch.optim.lr_scheduler of PyTorch 1.13 gives with a learning rate of 0.1.
void expect_rates(Schedule& schedule, const std::vector<double>& expected, const char* what) {
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(schedule.rate(static_cast<int64_t>(step)), expected[step], 1e-12)
        << what << ", step " << step;
}

void expect_momenta(const Schedule& schedule, const std::vector<double>& expected, const char* what) {
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(schedule.momentum(static_cast<int64_t>(step)).value(), expected[step], 1e-12)
        << what << ", step " << step;
}

TEST(Schedule, MultiStepIsPyTorchs) {  // MultiStepLR(milestones=[3, 5, 5, 9], gamma=0.5)
  ScheduleConfig config = of_kind("multi_step");
  config.milestones = {3, 5, 5, 9};
  config.gamma = 0.5;
  Schedule schedule(config, 0.1, 100);
  expect_rates(schedule,
               {0.1, 0.1, 0.1, 0.05, 0.05, 0.0125, 0.0125, 0.0125, 0.0125, 0.00625, 0.00625, 0.00625},
               "multi_step");
  EXPECT_FALSE(schedule.momentum(3).has_value());
}

TEST(Schedule, PolynomialIsPyTorchs) {  // PolynomialLR(total_iters=8, power=2)
  ScheduleConfig config = of_kind("polynomial");
  config.decay_steps = 8;
  config.power = 2;
  Schedule schedule(config, 0.1, 100);
  expect_rates(schedule, {0.1, 0.0765625, 0.05625, 0.0390625, 0.025, 0.0140625, 0.00625, 0.0015625, 0, 0},
               "polynomial");
  config.minimum = 0.02;
  Schedule above(config, 0.1, 100);
  EXPECT_NEAR(above.rate(4), 0.04, 1e-15);
  EXPECT_EQ(above.rate(100), 0.02);
}

TEST(Schedule, OneCycleIsPyTorchs) {  // OneCycleLR(max_lr=0.1, total_steps=12)
  Schedule schedule(of_kind("one_cycle"), 0.1, 12);
  expect_rates(schedule,
               {0.004, 0.034978965422, 0.0879285159122, 0.0994415435451, 0.0933012969841, 0.081174565395,
                0.0647378997695, 0.0462637102667, 0.0283060998209, 0.0133477530189, 0.00345669874254, 4e-07},
               "one_cycle");
  expect_momenta(schedule,
                 {0.95, 0.917730244352, 0.862574462591, 0.850558458689, 0.856698729811, 0.868825509907,
                  0.885262241279, 0.903736504679, 0.921694186956, 0.936652593591, 0.946543687432, 0.95},
                 "one_cycle");
  EXPECT_EQ(schedule.rate(1000), schedule.rate(11));  // there PyTorch raises an error

  ScheduleConfig config = of_kind("one_cycle");
  config.decay_steps = 12;
  config.one_cycle.rising_share = 0.25;
  config.one_cycle.shape = "linear";
  config.one_cycle.start_divisor = 10;
  config.one_cycle.end_divisor = 100;
  config.one_cycle.three_parts = true;
  config.one_cycle.low_momentum = 0.8;
  config.one_cycle.high_momentum = 0.9;
  Schedule three(config, 0.1, 100);
  expect_rates(three,
               {0.01, 0.055, 0.1, 0.055, 0.01, 0.00858571428571, 0.00717142857143, 0.00575714285714,
                0.00434285714286, 0.00292857142857, 0.00151428571429, 0.0001},
               "three parts");
  expect_momenta(three, {0.9, 0.85, 0.8, 0.85, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9}, "three parts");
  config.one_cycle.cycle_momentum = false;
  EXPECT_FALSE(Schedule(config, 0.1, 100).momentum(1).has_value());
}

TEST(Schedule, CyclicIsPyTorchs) {
  ScheduleConfig config = of_kind("cyclic");
  config.minimum = 0.01;
  config.cyclic.up_steps = 3;
  config.cyclic.down_steps = 2;
  config.cyclic.cycle_momentum = true;
  Schedule triangular(config, 0.1, 100);
  expect_rates(triangular, {0.01, 0.04, 0.07, 0.1, 0.055, 0.01, 0.04, 0.07, 0.1, 0.055, 0.01, 0.04},
               "triangular");
  expect_momenta(triangular,
                 {0.9, 0.866666666667, 0.833333333333, 0.8, 0.85, 0.9, 0.866666666667, 0.833333333333},
                 "triangular");
  config.cyclic = {};
  config.cyclic.up_steps = 2;
  config.cyclic.mode = "triangular2";
  Schedule halved(config, 0.1, 100);
  expect_rates(halved, {0.01, 0.055, 0.1, 0.055, 0.01, 0.0325, 0.055, 0.0325, 0.01, 0.02125, 0.0325, 0.02125},
               "triangular2");
  EXPECT_FALSE(halved.momentum(1).has_value());
  config.cyclic.down_steps = 3;
  config.cyclic.mode = "exp_range";
  config.cyclic.gamma = 0.9;
  Schedule shrinking(config, 0.1, 100);
  expect_rates(shrinking,
               {0.01, 0.0505, 0.0829, 0.05374, 0.029683, 0.01, 0.033914845, 0.053046721, 0.0358280326,
                0.02162261467, 0.01, 0.0241214768241},
               "exp_range");
}

TEST(Schedule, ATableGivesStairsOrLines) {
  ScheduleConfig config = of_kind("table", 2);
  config.table = {"3:0.5", "7:0.25"};
  Schedule stairs(config, 0.1, 100);  // LambdaLR with these factors, after two steps of warm-up
  expect_rates(stairs, {0.05, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025}, "stairs");
  config.table_in_lines = true;
  Schedule lines(config, 0.1, 100);
  expect_rates(lines, {0.05, 0.1, 0.1, 0.25 / 3, 0.2 / 3, 0.05, 0.04375, 0.0375, 0.03125, 0.025, 0.025},
               "lines");
  config.table = {"0:0.5", "1e3:0.1"};
  EXPECT_THROW(Schedule(config, 0.1, 100), Error);
  for (const char* wrong : {"", "5", "5:", ":1", "x:1", "5:y", "5:1:2", "-1:1", "5:-1", "5:nan", "5:0.5 "}) {
    config.table = {wrong};
    EXPECT_THROW(Schedule(config, 0.1, 100), Error) << wrong;
  }
  config.table = {"5:1", "5:0.5"};
  EXPECT_THROW(Schedule(config, 0.1, 100), Error);
  config.table = {};
  EXPECT_THROW(Schedule(config, 0.1, 100), Error);
}

// A curve that begins low is led up to by its warm-up, not jumped down to.
TEST(Schedule, WarmupLeadsToTheBeginningOfTheCurve) {
  for (const char* kind : {"one_cycle", "cyclic", "table"}) {
    ScheduleConfig config = of_kind(kind, 4);
    config.minimum = 0.01;
    config.table = {"0:0.2", "5:1"};
    Schedule schedule(config, 0.1, 40);
    const double first = schedule.rate(4);
    EXPECT_LT(first, 0.1) << kind;
    for (int64_t step = 0; step < 4; ++step)
      EXPECT_DOUBLE_EQ(schedule.rate(step), first * static_cast<double>(step + 1) / 4) << kind;
  }
}

TEST(Schedule, EveryKindIsAFunctionOfTheStepAlone) {
  for (const std::string& kind : schedule_kinds()) {
    ScheduleConfig config = of_kind(kind, 3);
    config.milestones = {4, 9};
    config.table = {"5:0.5"};
    config.cyclic.up_steps = 4;
    Schedule forward(config, 1, 30), jumping(config, 1, 30);
    std::vector<double> rates;
    for (int64_t step = 0; step < 30; ++step) rates.push_back(forward.rate(step));
    for (const int64_t step : {29, 0, 7, 7, 3, 20}) {
      EXPECT_EQ(jumping.rate(step), rates[static_cast<size_t>(step)]) << kind;
      EXPECT_EQ(jumping.momentum(step), forward.momentum(step)) << kind;
    }
  }
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
  EXPECT_THROW(Schedule(of_kind("multi_step"), 1, 10), Error);
  for (const char* kind : {"one_cycle", "cyclic"}) {
    config = of_kind(kind, 2);
    config.upstream_warmup = true;
    EXPECT_THROW(Schedule(config, 1, 10), Error) << kind;
  }
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

// Whose rates are of the step alone, dampened while the warm-up lasts, but for the first.
TEST(UpstreamSchedule, KnowsCurvesThatRiseAndFall) {
  const nlohmann::ordered_json arguments = {{"max_lr", 0.5}, {"total_steps", 20}, {"div_factor", 10}};
  UpstreamSchedule once(1, 4, TorchScheduler("OneCycleLR", arguments));
  OneCycleConfig shape;
  shape.start_divisor = 10;
  UpstreamSchedule again(
      1, 4,
      TorchScheduler("CyclicLR",
                     {{"base_lr", 0.1}, {"max_lr", 0.5}, {"step_size_up", 4}, {"cycle_momentum", false}}));
  for (int64_t step = 0; step < 20; ++step) {
    const double dampening = step == 0 ? 1 : std::min(1.0, static_cast<double>(step + 1) / 4);
    const CyclePoint wanted = one_cycle(shape, 0.5, 20, step);
    EXPECT_NEAR(once.rate(step), wanted.rate * dampening, 1e-12) << step;
    EXPECT_NEAR(once.momentum(step).value(), wanted.momentum, 1e-12) << step;
    const double height = static_cast<double>(4 - std::abs(step % 8 - 4)) / 4;
    EXPECT_NEAR(again.rate(step), (0.1 + 0.4 * height) * dampening, 1e-12) << step;
    EXPECT_FALSE(again.momentum(step).has_value());
  }
}

TEST(UpstreamSchedule, KnowsMultiStepAndPolynomialCurves) {
  ScheduleConfig config = of_kind("multi_step", 1);
  config.upstream_warmup = true;
  config.milestones = {3, 5};
  config.gamma = 0.5;
  Schedule steps(config, 1, 30);
  config.kind = "polynomial";
  config.decay_steps = 10;
  config.power = 2;
  Schedule polynomial(config, 1, 30);
  for (int64_t step = 0; step < 12; ++step) {
    EXPECT_NEAR(steps.rate(step), step < 3 ? 1 : step < 5 ? 0.5 : 0.25, 1e-12);
    EXPECT_NEAR(polynomial.rate(step), std::pow(std::max(0.0, 1 - static_cast<double>(step) / 10), 2), 1e-12);
  }
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

}  // namespace schedule_test
}  // namespace melete
