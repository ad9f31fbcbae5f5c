// What Muse's training steps cost, and how long a picture takes, at the sizes that docs/muse.md compares with
// muse-maskgit-pytorch.
#include <torch/utils.h>

#include "config/schema.h"
#include "core/base/error.h"
#include "generate/sampling.h"
#include "measure/noise_batches.h"
#include "systems/muse/muse.h"
#include "systems/muse/system.h"
#include "systems/muse/task_maskgit.h"
#include "systems/muse/task_vqgan.h"
#include "train/trainer.h"

namespace melete {

namespace {

constexpr int64_t kTextLength = 32;

struct MuseBenchConfig {
  muse::VqganConfig vqgan;
  muse::TextedMaskGitConfig maskgit;
  IterativeMaskingConfig decoding;
  int64_t batch_size = 4;
  int64_t side = 64;  // of the VQ-GAN's pictures
  bool vgg = true;
  int64_t gradient_penalty_every = 1;  // upstream asks for it in every step
  int64_t most_pictures = 4;           // generated at once

  MuseBenchConfig() {
    vqgan.vae.dim = 64;
    vqgan.vae.layers = 3;
    auto& transformer = maskgit.maskgit.transformer;
    transformer.tokens = 1024;
    transformer.dim = 256;
    transformer.depth = 6;
  }
};

// averaged: as upstream trains its VQ-GAN, with a moving average that moves in every step; it has no trainer
// for MaskGit.
void time_steps(Bench& bench, Task& task, Batch batch, const std::string& precision, bool averaged) {
  NoiseBatches batches(std::move(batch));
  TrainerConfig config;
  config.precision = precision;
  config.accumulate = 1;
  config.ema.enabled = averaged;
  config.ema.update_after_step = 0;
  config.ema.update_every = 1;
  Trainer trainer({task, batches}, config);
  bench.measure(
      task.name() + ".train_step", [&] { trainer.step(); }, true);
}

// VGG as large as torchvision's, with weights of nobody.
Vgg16 noise_vgg() {
  Vgg16 vgg{Vgg16Config{}};
  vgg->eval();
  for (const at::Tensor& weight : vgg->parameters()) weight.set_requires_grad(false);
  return vgg;
}

void bench_vqgan(Bench& bench, const MuseBenchConfig& c, const std::string& precision) {
  muse::VqganTaskConfig config;
  config.model = c.vqgan;
  config.gradient_penalty_every = c.gradient_penalty_every;
  muse::VqganTask task(config, c.vgg ? noise_vgg() : Vgg16(nullptr), {});
  Batch batch;
  batch.set("picture", at::rand({c.batch_size, c.vqgan.vae.channels, c.side, c.side}));
  time_steps(bench, task, std::move(batch), precision, true);
}

void bench_maskgit(Bench& bench, const MuseBenchConfig& c, const std::string& precision) {
  muse::MaskGitTask task(c.maskgit, {}, {}, {});
  const auto& transformer = c.maskgit.maskgit.transformer;
  Batch batch;
  batch.set("tokens", at::randint(transformer.tokens, {c.batch_size, transformer.positions}, at::kLong));
  batch.set("text_features", at::randn({c.batch_size, kTextLength, transformer.text_dim}));
  time_steps(bench, task, std::move(batch), precision, false);
}

void bench_pictures(Bench& bench, const MuseBenchConfig& c, const std::string& precision) {
  const at::NoGradGuard no_grad;
  muse::PictureStage stage;
  stage.maskgit = muse::MaskGit(c.maskgit.maskgit);
  muse::VqganVaeConfig vae = c.vqgan.vae;
  vae.quantizer.codebook_size = c.maskgit.maskgit.transformer.tokens;
  stage.vae = muse::VqganVae(vae);
  stage.maskgit->eval();
  stage.vae->eval();
  for (int64_t pictures = 1; pictures <= c.most_pictures; pictures *= 4) {
    muse::PictureRequest request;
    request.text = at::randn({pictures, kTextLength, c.maskgit.maskgit.transformer.text_dim});
    request.decoding = c.decoding;
    request.precision = precision;
    BenchRow& row = bench.measure(
        fmt::format("muse.pictures_{}", pictures),
        [&] {
          RowDraws draws(1, "bench", pictures);
          muse::make_pictures(stage, request, draws);
        },
        true);
    row.note = fmt::format("{:.2f} s a picture, {} steps with guidance",
                           row.seconds / static_cast<double>(pictures), c.decoding.steps);
  }
}

class MuseBenchmark final : public Benchmark {
 public:
  explicit MuseBenchmark(std::string what) : what_(std::move(what)) {}

  void describe(Schema& s) override {
    s.section("vqgan", config_.vqgan, "the autoencoder");
    s.section("maskgit", config_.maskgit, "the transformer");
    s.section("decoding", config_.decoding, "of pictures from text");
    s.option("batch_size", config_.batch_size, "items of a step").at_least(1);
    s.option("side", config_.side, "of the VQ-GAN's pictures").at_least(8).unit("pixels");
    s.option("vgg", config_.vgg, "with the perceptual loss of a VGG16");
    s.option("gradient_penalty_every", config_.gradient_penalty_every, "0: never").at_least(0).unit("steps");
    s.option("most_pictures", config_.most_pictures, "from text at once: 1, 4, ...").at_least(1);
  }
  void run(Bench& bench, const std::string& precision) override {
    torch::manual_seed(1);
    if (what_ == "muse") return bench_pictures(bench, config_, precision);
    if (what_ == kVqganTask) return bench_vqgan(bench, config_, precision);
    bench_maskgit(bench, config_, precision);
  }

 private:
  std::string what_;
  MuseBenchConfig config_;
};

}  // namespace

std::unique_ptr<Benchmark> make_muse_benchmark(const std::string& what) {
  return std::make_unique<MuseBenchmark>(what);
}

}  // namespace melete
