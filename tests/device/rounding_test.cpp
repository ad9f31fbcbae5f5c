// What rounding alone does between devices. A young Voicebox normalises queries and keys and multiplies their
// products by 10, so that a row of attention sees little but its best key: float32's last digit decides which
// in a tie, and what follows differs. A fault of an operator would be there in float64, too.
#include <gtest/gtest.h>

#include <cmath>

#include "device/pretend_gpu.h"
#include "device/untrained_runs.h"
#include "gradient_check.h"
#include "systems/voicebox/load.h"
#include "systems/voicebox/sampling.h"

namespace melete::device_rounding_test {

using melete::testing::kGentle;
using melete::testing::pretend_gpu;
using melete::testing::UntrainedRuns;

double db_between(const at::Tensor& wanted, const at::Tensor& got) {
  const at::Tensor x = wanted.cpu().to(at::kDouble), y = got.cpu().to(at::kDouble);
  return 10 * std::log10((x.square().sum() / (x - y).square().sum()).item<double>());
}

// Frames of a voicebox from the same noise; gain: of its queries and keys, 1 is what training begins with.
at::Tensor spoken_frames(at::Device device, at::ScalarType type, double gain) {
  const at::NoGradGuard no_grad;
  auto loaded =
      voicebox::load_voicebox(UntrainedRuns::shared() / "reading.safetensors", Weights::best, "", device);
  for (auto& named : loaded.model->named_parameters())
    if (named.key().ends_with("query_norm") || named.key().ends_with("key_norm"))
      named.value().mul_(gain / kGentle);
  loaded.model->to(type);
  constexpr int64_t kFrames = 120, kFramesOfAToken = 8;
  const int64_t dim = loaded.features->dim();
  voicebox::Condition condition;
  condition.tokens =
      at::arange(kFrames / kFramesOfAToken).repeat_interleave(kFramesOfAToken).unsqueeze(0).to(device);
  condition.context = at::zeros({1, kFrames, dim}, at::TensorOptions(type)).to(device);
  condition.hidden = at::ones({1, kFrames}, at::kBool).to(device);
  OdeConfig how;
  how.steps = 2;
  const at::Tensor start = noise({1, kFrames, dim}, 3).to(at::kFloat).to(type).to(device);
  return solve(voicebox::guided_flow(loaded.model, condition, 1), start, how).x;
}

TEST(RoundingOnAGpu, IsAllThatAVoiceboxDiffersBy) {
  if (!UntrainedRuns::shared().speaks()) GTEST_SKIP() << "no espeak-ng";
  for (const double gain : {1.0, kGentle}) {
    SCOPED_TRACE(gain);
    const at::Tensor exact = spoken_frames(at::kCPU, at::kDouble, gain);
    EXPECT_GT(db_between(exact, spoken_frames(pretend_gpu(), at::kDouble, gain)), 150);
    const double cpu = db_between(exact, spoken_frames(at::kCPU, at::kFloat, gain)),
                 gpu = db_between(exact, spoken_frames(pretend_gpu(), at::kFloat, gain));
    std::printf("gain %.2f: float32 on the CPU %.1f dB from float64, on the GPU %.1f\n", gain, cpu, gpu);
    if (gain == kGentle) {
      EXPECT_GT(cpu, 100);
      EXPECT_GT(gpu, 100);
    }
  }
}

}  // namespace melete::device_rounding_test
