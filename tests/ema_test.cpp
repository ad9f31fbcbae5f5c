// The moving average of weights.
#include "train/ema.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>

#include "core/base/error.h"

namespace melete {
namespace ema_test {

struct Small : torch::nn::Module {
  at::Tensor weight, running, count;
  explicit Small(double value) {
    weight = register_parameter("weight", at::full({2, 3}, value));
    running = register_buffer("running", at::full({3}, value));
    count = register_buffer("count", at::full({}, 7, at::kLong));
  }
  void set(double value) {
    at::NoGradGuard guard;
    weight.fill_(value);
    running.fill_(value);
  }
};

EmaConfig quick() {
  EmaConfig config;
  config.beta = 0.9;
  config.update_after_step = 2;
  config.update_every = 2;
  return config;
}

TEST(Ema, CopiesThenAverages) {
  Small model(0);
  Ema ema(model, quick());
  double expected = 0;
  for (int64_t step = 0; step < 12; ++step) {
    model.set(static_cast<double>(step + 1));
    ema.update();
    if (step % 2 == 0) {
      if (step <= 4) {
        expected = static_cast<double>(step + 1);  // 4 is the first averaging update, it starts from a copy
      } else {
        const double t = static_cast<double>(step + 1) - 2 - 1;
        const double decay = std::min(0.9, 1 - std::pow(1 + t, -2.0 / 3));
        expected = expected * decay + static_cast<double>(step + 1) * (1 - decay);
      }
    }
    EXPECT_NEAR(ema.average("weight")[0][0].item<double>(), expected, 1e-5) << step;
    EXPECT_NEAR(ema.average("running")[0].item<double>(), expected, 1e-5) << step;
    EXPECT_EQ(ema.started(), step >= 4);
  }
  EXPECT_THROW(ema.average("count"), Error);
}

// As ema-pytorch with karras_beta: a bound that grows with the step.
TEST(Ema, PowerFunctionBoundsTheDecay) {
  EmaConfig config;
  config.power_function = true;
  config.update_after_step = 0;
  config.update_every = 1;
  config.min_value = 0.99;  // far above what the steps below allow
  Small model(0);
  Ema ema(model, config);
  for (int64_t step = 0; step < 6; ++step) {
    ema.update();
    const auto count = static_cast<double>(step + 1);
    EXPECT_NEAR(ema.decay(), step == 0 ? 0 : std::pow(1 - 1 / (count + 1), 1 + 2.0 / 3), 1e-12) << step;
  }
}

TEST(Ema, ScopeSwapsWithoutCopyingAndPutsBack) {
  Small model(1);
  Ema ema(model, quick());
  model.set(5);
  const void* online = model.weight.data_ptr();
  const void* average = ema.average("weight").data_ptr();
  {
    EmaScope scope(ema);
    EXPECT_EQ(model.weight.data_ptr(), average);
    EXPECT_EQ(model.weight.detach()[0][0].item<float>(), 1);
    EXPECT_EQ(model.named_parameters()["weight"].detach()[0][0].item<float>(), 1);
    EXPECT_EQ(model.running[0].item<float>(), 1);
    EXPECT_TRUE(model.weight.requires_grad());
    EXPECT_THROW(EmaScope again(ema), Error);
    EXPECT_THROW(ema.update(), Error);
    TensorMap state;
    EXPECT_THROW(ema.state(state, ""), Error);
  }
  EXPECT_EQ(model.weight.data_ptr(), online);
  EXPECT_EQ(ema.average("weight").data_ptr(), average);
  EXPECT_EQ(model.weight.detach()[0][0].item<float>(), 5);
  EXPECT_EQ(model.running[0].item<float>(), 5);
}

TEST(Ema, ScopePutsBackWhenSomethingThrows) {
  Small model(1);
  Ema ema(model, quick());
  model.set(5);
  try {
    EmaScope scope(ema);
    throw std::runtime_error("a sample could not be written");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(model.weight.detach()[0][0].item<float>(), 5);
}

TEST(Ema, GradientsStillArriveAfterASwap) {
  Small model(2);
  Ema ema(model, quick());
  { EmaScope scope(ema); }
  (model.weight * 3).sum().backward();
  EXPECT_EQ(model.weight.grad()[0][0].item<float>(), 3);
}

TEST(Ema, LeavesOutWhatIsNotWanted) {
  Small model(1);
  Ema ema(model, quick(), [](const std::string& name) { return name != "weight"; });
  model.set(5);
  EmaScope scope(ema);
  EXPECT_EQ(model.weight.detach()[0][0].item<float>(), 5);
  EXPECT_EQ(model.running[0].item<float>(), 1);
}

TEST(Ema, StateRoundTripBetweenUpdates) {
  Small model(0), other(0);
  Ema ema(model, quick()), loaded(other, quick());
  for (int step = 0; step < 7; ++step) {
    model.set(step * 0.3);
    ema.update();
  }
  TensorMap state;
  ema.state(state, "ema.");
  loaded.load(state, "ema.");
  for (int step = 7; step < 12; ++step) {
    model.set(step * 0.3);
    other.set(step * 0.3);
    ema.update();
    loaded.update();
    EXPECT_TRUE(ema.average("weight").equal(loaded.average("weight")));
  }
  state.erase("ema.average.running");
  EXPECT_THROW(loaded.load(state, "ema."), Error);
}

}  // namespace ema_test
}  // namespace melete
