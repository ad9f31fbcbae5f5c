// What a step of Voicebox costs, and how fast it and its vocoder make sound.
#include <fmt/format.h>
#include <torch/utils.h>

#include "config/schema.h"
#include "generate/product_precision.h"
#include "generate/sampling.h"
#include "measure/noise_batches.h"
#include "pretrained/vocos.h"
#include "systems/voicebox/sampling.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/task.h"
#include "train/trainer.h"

namespace melete {

namespace voicebox {

namespace {

// Defaults: the sizes that docs/voicebox.md compares with voicebox-pytorch, whose network has no skips.
struct VoiceboxBenchConfig {
  VoiceboxConfig model;
  VocosConfig vocoder;
  FlowSampling sampling;
  int64_t batch_size = 4, frames = 300;
  double frames_per_second = 93.75;  // 24 kHz in hops of 256

  VoiceboxBenchConfig() {
    model.tokens = 500;
    model.token_dim = 256;
    model.transformer.dim = 256;
    model.transformer.depth = 6;
    model.transformer.heads = 8;
    model.transformer.skip_connections = false;
  }
};

void describe_all(Schema& s, VoiceboxBenchConfig& c) {
  s.section("model", c.model, "the network");
  s.section("vocoder", c.vocoder, "Vocos, from its frames to sound");
  s.section("sampling", c.sampling, "how speech is made");
  s.option("batch_size", c.batch_size, "rows of a step").at_least(1);
  s.option("frames", c.frames, "of a row, and of what is made").at_least(2).unit("frames");
  s.option("frames_per_second", c.frames_per_second, "for factors of real time").at_least(1);
}

class VoiceboxBenchmark final : public Benchmark {
 public:
  void describe(Schema& schema) override { describe_all(schema, config_); }

  void run(Bench& bench, const std::string& precision) override {
    torch::manual_seed(1);
    train_step(bench, precision);
    const double seconds = static_cast<double>(config_.frames) / config_.frames_per_second;
    const auto real_time = [&](BenchRow& row, const std::string& about) {
      row.note = fmt::format("{}real-time factor {:.3f}", about, row.seconds / seconds);
    };
    Voicebox model(config_.model);
    model->eval();
    Condition condition;
    condition.context = at::randn({1, config_.frames, config_.model.frame_dim});
    condition.tokens = at::randint(config_.model.tokens, {1, config_.frames}, at::kLong);
    FlowSampling how = config_.sampling;
    how.precision = precision;
    int64_t evaluations = 0;
    BenchRow& sampling = bench.measure(
        "voicebox.sample",
        [&] {
          RowDraws draws(1, "bench", 1);
          evaluations = sample(model, condition, how, draws).solution.evaluations;
        },
        true);
    real_time(sampling, fmt::format("{} evaluations, ", evaluations));
    Vocos vocoder(config_.vocoder);
    vocoder->eval();
    const at::Tensor frames = at::randn({1, config_.frames, config_.vocoder.input_dim});
    real_time(bench.measure("voicebox.vocoder",
                            [&] {
                              const at::NoGradGuard no_grad;
                              const ProductPrecision rounded(precision, at::kCPU);
                              vocoder->forward(frames);
                            }),
              "");
  }

 private:
  void train_step(Bench& bench, const std::string& precision) {
    VoiceboxTask task(config_.model, TaskConfig(), {0, 1}, nullptr, {});
    Batch batch;
    batch.set("frames", at::randn({config_.batch_size, config_.frames, config_.model.frame_dim}));
    batch.set("tokens", at::randint(config_.model.tokens, {config_.batch_size, config_.frames}, at::kLong));
    NoiseBatches batches(std::move(batch));
    TrainerConfig config;
    config.precision = precision;
    config.ema.enabled = false;
    Trainer trainer({task, batches}, config);
    bench.measure(
        "voicebox.train_step", [&] { trainer.step(); }, true);
  }

  VoiceboxBenchConfig config_;
};

}  // namespace

}  // namespace voicebox

std::unique_ptr<Benchmark> make_voicebox_benchmark() {
  return std::make_unique<voicebox::VoiceboxBenchmark>();
}

}  // namespace melete
