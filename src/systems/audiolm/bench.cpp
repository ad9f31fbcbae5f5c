// What a training step of AudioLM's stages costs, and how many tokens a second they make.
#include <fmt/format.h>
#include <torch/utils.h>

#include "core/base/error.h"
#include "kernels/weight_storage.h"
#include "measure/noise_batches.h"
#include "systems/audiolm/stages.h"
#include "systems/audiolm/system.h"
#include "systems/audiolm/task.h"
#include "train/trainer.h"

namespace melete {

namespace {

// Defaults: the sizes that docs/performance.md compares with audiolm-pytorch.
struct StageBenchConfig {
  StageConfig model;
  int64_t batch_size = 4;
  int64_t semantic_tokens = 500, codebook_size = 1024;
  int64_t coarse_quantizers = 3, fine_quantizers = 5;
  int64_t semantic_length = 256;        // tokens, semantic stage
  int64_t coarse_semantic_length = 64;  // tokens before the codes, coarse stage
  int64_t coarse_frames = 64;           // coarse stage
  int64_t fine_frames = 32;             // fine stage
  int64_t generated_length = 256;       // tokens that generation is timed on
};
at::Tensor noise(at::IntArrayRef shape, int64_t classes) {
  return at::randint(classes, shape, at::kLong);
}

SemanticConfig semantic_of(const StageBenchConfig& c) {
  SemanticConfig config;
  config.stage = c.model;
  config.semantic_tokens = c.semantic_tokens;
  return config;
}

CoarseConfig coarse_of(const StageBenchConfig& c) {
  CoarseConfig config;
  config.stage = c.model;
  config.semantic_tokens = c.semantic_tokens;
  config.codebook_size = c.codebook_size;
  config.quantizers = c.coarse_quantizers;
  return config;
}

FineConfig fine_of(const StageBenchConfig& c) {
  FineConfig config;
  config.stage = c.model;
  config.codebook_size = c.codebook_size;
  config.coarse_quantizers = c.coarse_quantizers;
  config.fine_quantizers = c.fine_quantizers;
  return config;
}

void bench_step(Bench& bench, Task& task, const std::string& name, at::Tensor semantic, at::Tensor acoustic,
                const std::string& precision) {
  Batch batch;
  if (semantic.defined()) batch.set("semantic", std::move(semantic));
  if (acoustic.defined()) batch.set("acoustic", std::move(acoustic));
  NoiseBatches batches(std::move(batch));
  TrainerConfig config;
  config.precision = precision;
  config.accumulate = 1;
  config.ema.enabled = false;
  Trainer trainer({task, batches}, config);
  bench.measure(
      name + ".train_step", [&] { trainer.step(); }, true);
}

// A token reads every weight of its transformer once: memory sets the limit.
void note_tokens(const Bench& bench, BenchRow& row, int64_t tokens, const Transformer& transformer) {
  int64_t weights = 0;
  for (const at::Tensor& parameter : transformer->parameters()) weights += parameter.numel();
  const double per_second = static_cast<double>(tokens) / row.seconds,
               bytes = static_cast<double>(weights) * bytes_per_weight(weight_storage(row.precision));
  row.note = fmt::format("{:.0f} tokens/s, {:.0f} % of memory's speed", per_second,
                         100e-9 * bytes * per_second / bench.report().machine.read_gb_per_second);
}

void bench_generate(Bench& bench, const StageBenchConfig& c, const std::string& precision) {
  const auto request = [&](Draws& draws) {
    StageRequest result;
    result.draws = &draws;
    result.unique_consecutive = false;
    result.weights = weight_storage(precision);
    return result;
  };
  SemanticTransformer semantic(semantic_of(c));
  semantic->eval();
  {
    const at::NoGradGuard no_grad;
    semantic->logits->bias[c.semantic_tokens] = -1e9;  // so that none of them ends early
  }
  note_tokens(
      bench,
      bench.measure(
          "generate.semantic",
          [&] {
            RowDraws draws(1, "bench", 1);
            generate_semantic(semantic, at::empty({1, 0}, at::kLong), c.generated_length, request(draws));
          },
          true),
      c.generated_length, semantic->transformer);
  CoarseTransformer coarse(coarse_of(c));
  coarse->eval();
  const int64_t frames = c.generated_length / c.coarse_quantizers;
  int64_t made = 0;
  BenchRow& row = bench.measure("generate.coarse", [&] {
    RowDraws draws(1, "bench", 1);
    made = generate_coarse(coarse, noise({1, c.coarse_semantic_length}, c.semantic_tokens), {}, frames,
                           request(draws))
               .size(1) *
           c.coarse_quantizers;
  });
  note_tokens(bench, row, made, coarse->transformer);
  FineTransformer fine(fine_of(c));
  fine->eval();
  const int64_t fine_frames = c.generated_length / c.fine_quantizers;
  note_tokens(bench,
              bench.measure("generate.fine",
                            [&] {
                              RowDraws draws(1, "bench", 1);
                              generate_fine(fine,
                                            noise({1, fine_frames, c.coarse_quantizers}, c.codebook_size), {},
                                            request(draws));
                            }),
              fine_frames * c.fine_quantizers, fine->transformer);
}

void describe_all(Schema& s, StageBenchConfig& c) {
  s.section("model", c.model, "size of the transformer");
  s.option("batch_size", c.batch_size, "sequences of a step").at_least(1);
  s.option("semantic_tokens", c.semantic_tokens, "semantic codebook").at_least(2);
  s.option("codebook_size", c.codebook_size, "acoustic codebooks").at_least(2);
  s.option("coarse_quantizers", c.coarse_quantizers, "coarse quantizers").at_least(1);
  s.option("fine_quantizers", c.fine_quantizers, "fine quantizers").at_least(1);
  s.option("semantic_length", c.semantic_length, "semantic stage: length of a sequence")
      .at_least(2)
      .unit("tokens");
  s.option("coarse_semantic_length", c.coarse_semantic_length,
           "coarse stage: semantic tokens before the codes")
      .at_least(1)
      .unit("tokens");
  s.option("coarse_frames", c.coarse_frames, "coarse stage: length of the codes").at_least(1).unit("frames");
  s.option("fine_frames", c.fine_frames, "fine stage: length").at_least(1).unit("frames");
  s.option("generated_length", c.generated_length, "what generation is timed on").at_least(8).unit("tokens");
}

void bench_stage(Bench& bench, const std::string& what, const StageBenchConfig& c,
                 const std::string& precision) {
  torch::manual_seed(1);
  if (what == "generate") return bench_generate(bench, c, precision);
  StageTaskConfig config;
  config.loss.unique_consecutive = false;
  if (what == "semantic") {
    SemanticTask task(semantic_of(c), config, {});
    bench_step(bench, task, what, noise({c.batch_size, c.semantic_length}, c.semantic_tokens), {}, precision);
  } else if (what == "coarse") {
    CoarseTask task(coarse_of(c), config, {});
    bench_step(bench, task, what, noise({c.batch_size, c.coarse_semantic_length}, c.semantic_tokens),
               noise({c.batch_size, c.coarse_frames, c.coarse_quantizers}, c.codebook_size), precision);
  } else {
    require(what == "fine", "[bench] nothing to time is called `{}`", what);
    FineTask task(fine_of(c), config, {});
    bench_step(bench, task, what, {},
               noise({c.batch_size, c.fine_frames, c.coarse_quantizers + c.fine_quantizers}, c.codebook_size),
               precision);
  }
}

class StageBenchmark final : public Benchmark {
 public:
  explicit StageBenchmark(std::string what) : what_(std::move(what)) {}
  void describe(Schema& schema) override { describe_all(schema, config_); }
  std::vector<std::string> precisions() const override {
    return what_ == "generate" ? weight_precisions() : Benchmark::precisions();
  }
  void run(Bench& bench, const std::string& precision) override {
    bench_stage(bench, what_, config_, precision);
  }

 private:
  std::string what_;
  StageBenchConfig config_;
};

}  // namespace

std::unique_ptr<Benchmark> make_stage_benchmark(const std::string& what) {
  return std::make_unique<StageBenchmark>(what);
}

}  // namespace melete
