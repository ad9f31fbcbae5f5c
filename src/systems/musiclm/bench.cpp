// What a training step of MuLaN costs, and how fast its towers embed.
#include <fmt/format.h>
#include <torch/utils.h>

#include "core/base/error.h"
#include "generate/product_precision.h"
#include "measure/noise_batches.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task.h"
#include "train/trainer.h"

namespace melete {

namespace {

// Defaults: the sizes that docs/musiclm.md compares with musiclm-pytorch. Nothing is stretched, so that every
// step has the same number of patches.
const std::pair<const char*, const char*> kSizes[] = {
    {"batch_size", "8"},
    {"text.tokenizer", "clip"},
    {"model.audio.transformer.dim", "256"},
    {"model.text.transformer.dim", "256"},
    {"model.audio.augment.stretch", "1"},
};
constexpr int64_t kTextsAtOnce = 64;

class MulanBenchmark final : public Benchmark {
 public:
  MulanBenchmark() : recipe_(make_mulan_recipe()) {
    Schema schema = recipe_->schema();
    for (const auto& [setting, value] : kSizes) schema.set(setting, value);
  }

  void describe(Schema& schema) override { schema = recipe_->schema(); }

  void run(Bench& bench, const std::string& precision) override {
    recipe_->settle_on_paper();
    torch::manual_seed(1);
    const std::unique_ptr<Task> task = recipe_->make_task();
    const Batch batch = recipe_->example(recipe_->batch_size);
    {
      NoiseBatches batches(batch);
      TrainerConfig config = recipe_->train;
      config.precision = precision;
      config.device = "cpu";
      config.steps = 1000000;  // the recipe counts epochs
      Trainer trainer({*task, batches}, config);
      BenchRow& row = bench.measure(
          "mulan.train_step", [&] { trainer.step(); }, true);
      row.note = fmt::format("{:.2f} pairs/s",
                             static_cast<double>(recipe_->batch_size * config.accumulate) / row.seconds);
    }
    musiclm::Mulan& model = dynamic_cast<musiclm::MulanTask&>(*task).mulan();
    model->eval();
    const at::NoGradGuard no_grad;
    const ProductPrecision rounded(precision, at::kCPU);
    const at::Tensor wave = batch["wave"];
    BenchRow& heard = bench.measure("mulan.embed_audio", [&] { model->embed_audio({wave, {}}); });
    heard.note = fmt::format("{:.0f} x real time", static_cast<double>(wave.numel()) /
                                                       static_cast<double>(model->config().sample_rate_hz) /
                                                       heard.seconds);
    const musiclm::TextInput text{at::randint(2, model->config().text.vocabulary, {kTextsAtOnce, 32}), {}};
    BenchRow& read = bench.measure("mulan.embed_text", [&] { model->embed_text(text); });
    read.note = fmt::format("{:.0f} texts of 32 tokens/s", static_cast<double>(kTextsAtOnce) / read.seconds);
  }

 private:
  std::unique_ptr<Recipe> recipe_;
};

}  // namespace

std::unique_ptr<Benchmark> make_mulan_benchmark() {
  return std::make_unique<MulanBenchmark>();
}

}  // namespace melete
