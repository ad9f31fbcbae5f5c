// Everything that runs a model, on a GPU that is not there (pretend_gpu.h): nothing reads device memory on
// the host, nothing mixes devices, and results are the CPU's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/temporary_folder.h"
#include "core/base/random.h"
#include "device/pretend_gpu.h"
#include "every_recipe.h"
#include "nn/draws.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"
#include "train/trainer.h"

namespace melete {
namespace {

using melete::testing::gpu_traffic;
using melete::testing::pretend_gpu;
using melete::testing::TemporaryFolder;

TEST(PretendGpu, ComputesRefusesToMixAndCounts) {
  const at::Tensor x = at::arange(6, at::kFloat).reshape({2, 3}), y = x.to(pretend_gpu());
  const auto before = gpu_traffic();
  EXPECT_TRUE(at::equal(at::mm(y, y.t()).cpu(), at::mm(x, x.t())));
  EXPECT_EQ(gpu_traffic().copies_out, before.copies_out + 1);
  EXPECT_THROW(y + x, c10::Error);
  EXPECT_NO_THROW(y + at::full({}, 1.0F));
  at::Tensor view = y.select(0, 1);
  view.zero_();
  EXPECT_EQ(y.sum().item<float>(), 3);
}

TEST(PretendGpuDeathTest, HostCodeCannotReadItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const at::Tensor y = at::ones({4}, pretend_gpu());
  EXPECT_EXIT(std::printf("%f\n", *y.data_ptr<float>()), ::testing::ExitedWithCode(86),
              "touched device memory");
}

// Each kind of draw from a stream of its own, so that one who draws more of one kind (a codebook that does
// not wait to see how many of its codes are dead) leaves the others as they are; rows for dead codes are the
// same ones every time.
class DrawsByName : public Draws {
 public:
  explicit DrawsByName(uint64_t key) : key_(key) {}
  int64_t integer(std::string_view what, int64_t low, int64_t high) override {
    return of(what).integer(what, low, high);
  }
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override {
    if (what == "revive") streams_.erase(std::string(what));
    return of(what).rows(what, population, count);
  }
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
    return of(what).uniform(what, shape);
  }
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override {
    return of(what).normal(what, shape);
  }

 private:
  SeededDraws& of(std::string_view what) {
    const std::string name(what);
    return streams_.try_emplace(name, random_key(key_, name)).first->second;
  }
  uint64_t key_;
  std::map<std::string, SeededDraws> streams_;
};

std::unique_ptr<Draws> draws_by_name(const StepContext& context, int64_t phase) {
  const auto number = [](int64_t n) { return static_cast<uint64_t>(n); };
  return std::make_unique<DrawsByName>(
      random_key(7, "step", {number(context.step), number(phase), number(context.micro_batch)}));
}

class EveryRecipeOnAGpu : public ::testing::TestWithParam<std::string> {};

// The same two steps of two micro-batches each, here and there. The hand-written kernels of the CPU round
// otherwise: a vector between two codes may get the other one, and the second step has weights that Adam
// moved by the sign of gradients near zero.
TEST_P(EveryRecipeOnAGpu, TrainsAsOnTheCpu) {
  Prepared cpu = prepare(GetParam(), 2), gpu = prepare(GetParam(), 2);
  cpu.config.accumulate = gpu.config.accumulate = 2;
  cpu.config.device = "cpu";
  gpu.config.device = "cuda";
  Trainer here({*cpu.task, *cpu.batches}, cpu.config), there({*gpu.task, *gpu.batches}, gpu.config);
  here.set_draws(draws_by_name);
  there.set_draws(draws_by_name);
  for (int step = 0; step < 2; ++step) {
    const StepReport a = here.step(), b = there.step();
    EXPECT_FALSE(b.skipped) << b.skip_reason;
    ASSERT_EQ(a.losses.size(), b.losses.size());
    for (size_t i = 0; i < a.losses.size(); ++i) {
      EXPECT_EQ(a.losses[i].first, b.losses[i].first);
      const bool of_codes = a.losses[i].first.find("perplexity") != std::string::npos;
      const double tolerance = step == 0 ? (of_codes ? 2e-2 : 2e-3) : (of_codes ? 5e-2 : 2e-2);
      EXPECT_NEAR(a.losses[i].second, b.losses[i].second,
                  tolerance * std::max(1.0, std::abs(a.losses[i].second)))
          << a.losses[i].first << " in step " << step + 1;
    }
  }
  for (const auto& item : gpu.task->model().named_parameters())
    EXPECT_TRUE(item.value().is_cuda()) << item.key();
  for (const auto& item : gpu.task->model().named_buffers())
    EXPECT_TRUE(item.value().is_cuda()) << item.key();
}

// A step waits for the device once a phase, to bring its numbers home, and what goes to it does not wait.
void expect_one_wait_a_phase(Prepared made) {
  made.config.device = "cuda";
  Trainer trainer({*made.task, *made.batches}, made.config);
  trainer.step();  // k-means starts of codebooks, first statistics
  const auto before = gpu_traffic();
  {
    std::optional<testing::ShowWaits> show;
    if (std::getenv("MELETE_SHOW_WAITS") != nullptr) show.emplace();
    trainer.step();
  }
  const auto after = gpu_traffic();
  const auto phases = made.task->phases();  // a codec without discriminators has one that sits out
  EXPECT_EQ(
      after.copies_out - before.copies_out,
      std::count_if(phases.begin(), phases.end(), [](const Phase& phase) { return phase.first_step <= 1; }));
  EXPECT_EQ(after.waiting_in, before.waiting_in);
}

TEST_P(EveryRecipeOnAGpu, WaitsForItOnceAPhase) {
  expect_one_wait_a_phase(prepare(GetParam(), 2));
}

// The recipes that the list is tested with have none.
TEST(DraftOnAGpu, WaitsForItOnceAPhase) {
  expect_one_wait_a_phase(prepare("voicebox", 2, [](Schema& settings) {
    settings.set("told_by", "phonemes");
    settings.set("model.draft.dim", "32");
  }));
}

// A whole run: validates, samples, saves; what it saved goes on on the CPU, and the other way round.
TEST_P(EveryRecipeOnAGpu, ARunGoesOnOnAnotherDevice) {
  const TemporaryFolder folder;
  const std::atomic<bool> stop = false;
  std::string device = "cuda";
  for (const int64_t steps : {2, 3, 4}) {
    SCOPED_TRACE(device);
    Prepared made = prepare(GetParam(), 2);
    made.config.device = device;
    made.config.steps = steps;
    made.config.validate_every = made.config.sample_every = 1;
    made.config.validate_batches = 1;
    RunFolder run(folder / "run", steps == 2 ? StartMode::new_run : StartMode::resume);
    Trainer trainer({*made.task, *made.batches, made.batches.get(), &run}, made.config);
    EXPECT_EQ(trainer.resume(), steps != 2);
    const RunResult result = trainer.run(stop);
    EXPECT_EQ(result.outcome, Outcome::finished) << result.reason;
    EXPECT_EQ(result.step, steps);
    device = device == "cuda" ? "cpu" : "cuda";
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Recipes, EveryRecipeOnAGpu, ::testing::ValuesIn(recipe_names()), test_name);

}  // namespace
}  // namespace melete

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!melete::testing::install_pretend_gpu()) {
    std::puts("skipped: this LibTorch has a CUDA of its own");
    return 0;
  }
  return RUN_ALL_TESTS();
}
