// Solvers against known solutions, and by their order of convergence.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "core/base/error.h"
#include "generate/ode.h"
#include "generate/runge_kutta.h"
#include "gradient_check.h"

namespace melete {

namespace ode_test {

// x' = x (1 - x): x = 1 / (1 + (1 / x0 - 1) exp(-t))
at::Tensor logistic(const at::Tensor&, const at::Tensor& x) {
  return x * (1 - x);
}
at::Tensor logistic_solution(const at::Tensor& start, double time) {
  return 1 / (1 + (1 / start - 1) * std::exp(-time));
}
const at::Tensor& starts() {
  static const at::Tensor x = at::tensor({0.1, 0.3, 0.7, 2.0, 0.01, 0.5}, at::kDouble).view({3, 2});
  return x;
}

double error_of(const OdeConfig& config) {
  const at::Tensor x = solve(logistic, starts(), config).x;
  return (x - logistic_solution(starts(), 1)).abs().max().item<double>();
}

TEST(Ode, FixedStepsConvergeAtTheirOrder) {
  for (const std::string& name : runge_kutta_names()) {
    const RungeKutta& method = runge_kutta(name);
    if (method.adaptive()) continue;
    OdeConfig config;
    config.method = name;
    config.steps = 32;
    const double coarse = error_of(config);
    config.steps = 64;
    const double order = std::log2(coarse / error_of(config));
    EXPECT_NEAR(order, method.order, 0.25) << name;
  }
}

TEST(Ode, TablesAreConsistent) {
  for (const std::string& name : runge_kutta_names()) {
    const RungeKutta& method = runge_kutta(name);
    const auto sum = [](const std::vector<double>& weights) {
      double total = 0;
      for (const double w : weights) total += w;
      return total;
    };
    EXPECT_NEAR(sum(method.solution), 1, 1e-12) << name;
    EXPECT_NEAR(sum(method.error), 0, 1e-9) << name;
    if (method.adaptive()) {
      EXPECT_NEAR(sum(method.middle), 0.5, 1e-6) << name;
    }
    for (size_t i = 0; i < method.nodes.size(); ++i)
      EXPECT_NEAR(sum(method.stages[i]), method.nodes[i], 1e-10) << name << " stage " << i;
  }
}

TEST(Ode, AdaptiveStepsKeepTheirTolerance) {
  for (const std::string& name : runge_kutta_names()) {
    if (!runge_kutta(name).adaptive()) continue;
    for (const bool as_torchdiffeq : {false, true}) {
      OdeConfig config;
      config.method = name;
      config.as_torchdiffeq = as_torchdiffeq;
      double before = 1;
      for (const double tolerance : {1e-3, 1e-5, 1e-7}) {
        config.absolute_tolerance = config.relative_tolerance = tolerance;
        config.most_steps = 100000;
        const double error = error_of(config);
        // Errors of single steps add up: a method of low order takes many steps. torchdiffeq reads the result
        // off a polynomial over a step past the end, which is less exact than the steps: there it need only
        // fall.
        if (as_torchdiffeq) {
          EXPECT_LT(error, before) << name;
          before = error;
          continue;
        }
        EXPECT_LT(error, (runge_kutta(name).order > 2 ? 20 : 500) * tolerance)
            << name << ", tolerance " << tolerance;
        EXPECT_LT(error, before) << name;
        before = error;
      }
    }
  }
}

TEST(Ode, CountsWhatItDoes) {
  int64_t calls = 0;
  const Flow counted = [&](const at::Tensor& t, const at::Tensor& x) {
    ++calls;
    return logistic(t, x);
  };
  for (const char* method : {"midpoint", "dopri5", "adaptive_heun"}) {
    OdeConfig config;
    config.method = method;
    calls = 0;
    const OdeSolution solution = solve(counted, starts(), config);
    EXPECT_EQ(solution.evaluations, calls) << method;
    EXPECT_GT(solution.steps, 0);
  }
}

TEST(Ode, RowsDoNotDependOnEachOther) {
  OdeConfig config;
  config.method = "tsit5";
  const at::Tensor all = solve(logistic, starts(), config).x;
  for (int64_t row = 0; row < starts().size(0); ++row)
    expect_close(solve(logistic, starts().narrow(0, row, 1), config).x, all.narrow(0, row, 1), 1e-12);
}

TEST(Ode, TimesReachTheFlow) {
  // x' = 3 t^2, so x(1) = x0 + 1; two stages integrate it exactly only where they look at the right times.
  const Flow flow = [](const at::Tensor& times, const at::Tensor& x) {
    return (3 * times.square()).view({-1, 1}).expand_as(x).to(x.scalar_type());
  };
  for (const char* method : {"heun3", "rk4", "dopri5", "tsit5", "dopri8", "bosh3"}) {
    OdeConfig config;
    config.method = method;
    EXPECT_NEAR((solve(flow, starts(), config).x - starts()).mean().item<double>(), 1, 2e-5) << method;
  }
}

TEST(Ode, Grids) {
  OdeConfig config;
  config.steps = 7;
  config.grid = "epss";
  EXPECT_EQ(time_points(config),
            (std::vector<double>{0, 2 / 32.0, 4 / 32.0, 6 / 32.0, 8 / 32.0, 16 / 32.0, 24 / 32.0, 1}));
  config.steps = 8;
  EXPECT_THROW(time_points(config), Error);
  config.grid = "uniform";
  config.steps = 4;
  EXPECT_EQ(time_points(config), (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  config.sway = -1;
  const std::vector<double> early = time_points(config);
  EXPECT_NEAR(early[1], 1 - std::cos(M_PI / 8), 1e-12);  // with -1 it is 1 - cos(pi t / 2)
  EXPECT_EQ(early.back(), 1);
  config.sway = 0;
  config.times = {0, 0.7, 1};
  EXPECT_EQ(time_points(config), config.times);
  config.times = {0, 0.7, 0.6, 1};
  EXPECT_THROW(time_points(config), Error);
  config.times = {0.1, 1};
  EXPECT_THROW(time_points(config), Error);
}

TEST(Ode, UnknownMethodsAndEndlessWorkAreRefused) {
  OdeConfig config;
  config.method = "runge";
  EXPECT_THROW(solve(logistic, starts(), config), Error);
  config.method = "bosh3";
  config.absolute_tolerance = config.relative_tolerance = 1e-12;
  config.most_steps = 10;
  EXPECT_THROW(solve(logistic, starts(), config), Error);
}

}  // namespace ode_test
}  // namespace melete
