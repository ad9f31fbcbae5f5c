#include "bench/ranks_bench.h"

#include <torch/utils.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "dist/group.h"
#include "train/trainer.h"

namespace melete {

namespace {

class NoiseOfRank : public BatchSource {
 public:
  NoiseOfRank(int64_t items, int64_t samples, uint64_t rank) {
    auto generator = at::detail::createCPUGenerator(random_key(1, "noise", {rank}));
    batch_.waves = {at::randn({items, samples}, generator) * 0.1};
    batch_.lengths = {at::full({items}, samples, at::kLong)};
    batch_.texts.resize(static_cast<size_t>(items));
    batch_.paths.resize(static_cast<size_t>(items));
  }
  Batch batch(int64_t number) override {
    batch_.number = number;
    return batch_;
  }

 private:
  Batch batch_;
};

}  // namespace

double ranks_step_seconds(Group& group, const SoundStreamBenchConfig& config, const std::string& precision,
                          int repeats) {
  require(config.batch_size % group.size() == 0, "[bench] a batch of {} does not divide over {} processes",
          config.batch_size, group.size());
  torch::manual_seed(1);
  SoundStreamTask task(config.task, {});
  const auto samples = static_cast<int64_t>(config.segment_seconds() *
                                            static_cast<double>(config.task.model.codec.sample_rate_hz));
  NoiseOfRank source(config.batch_size / group.size(), samples, static_cast<uint64_t>(group.rank()));
  TrainerConfig settings;
  settings.precision = precision;
  settings.steps = 1000000;
  TrainerParts parts{task, source};
  parts.group = &group;
  Trainer trainer(std::move(parts), settings);
  trainer.step();  // places codebooks, fills caches
  group.barrier();
  at::Tensor seconds = at::full({1}, median_seconds(repeats, [&] { trainer.step(); }), at::kDouble);
  group.mean(seconds);
  return seconds.item<double>();
}

}  // namespace melete
