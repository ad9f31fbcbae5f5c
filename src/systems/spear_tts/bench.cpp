// What a training step of SPEAR-TTS costs, and how many tokens a second it writes.
#include <fmt/format.h>

#include "config/schema.h"
#include "measure/bench.h"
#include "measure/noise_batches.h"
#include "systems/spear_tts/beam_search.h"
#include "systems/spear_tts/speculative.h"
#include "systems/spear_tts/system.h"
#include "systems/spear_tts/task.h"
#include "train/trainer.h"

namespace melete::spear_tts {

namespace {

// Defaults: the sizes that docs/spear_tts.md compares with spear-tts-pytorch.
struct SpearBenchConfig {
  TextToSemanticConfig model;
  int64_t batch_size = 4, text_length = 256, speech_length = 256;
  int64_t generated_length = 256, beam_length = 256;
};

class SpearBenchmark final : public Benchmark {
 public:
  SpearBenchmark() {
    config_.model.speech.tokens = 500;
    config_.model.text.tokens = 256;
    config_.model.dim = 256;
    config_.model.early_exit_layer = 3;
  }

  void describe(Schema& s) override {
    s.section("model", config_.model, "size of the model");
    s.option("batch_size", config_.batch_size, "pairs of a step").at_least(1);
    s.option("text_length", config_.text_length, "of a pair").at_least(1).unit("tokens");
    s.option("speech_length", config_.speech_length, "of a pair").at_least(1).unit("tokens");
    s.option("generated_length", config_.generated_length, "what generation is timed on")
        .at_least(8)
        .unit("tokens");
    s.option("beam_length", config_.beam_length, "what the beam search is timed on")
        .at_least(8)
        .unit("tokens");
  }
  std::vector<std::string> precisions() const override { return {"fp32", "bf16", "int8"}; }

  void run(Bench& bench, const std::string& precision) override {
    if (precision != "int8") {
      step(bench, precision, "train_step", false);
      step(bench, precision, "frozen_step", true);
    }
    generation(bench, precision);
  }

 private:
  at::Tensor text(int64_t rows) const {
    return at::randint(config_.model.text.tokens, {rows, config_.text_length}, at::kLong);
  }

  // Everything is trained, without the early exit, as spear-tts-pytorch is timed; or what training text to
  // speech moves, with it.
  void step(Bench& bench, const std::string& precision, const std::string& name, bool frozen) const {
    TextToSemanticConfig model = config_.model;
    if (!frozen) model.early_exit_layer = 0;
    TaskConfig how;
    how.freeze = frozen;
    SpearTask task(kTextToSemanticTask, kTextToSpeech, model, how, std::make_shared<ByteTokenizer>(), {});
    Batch batch;
    batch.set("text", text(config_.batch_size));
    batch.set("semantic", at::randint(config_.model.speech.tokens,
                                      {config_.batch_size, config_.speech_length}, at::kLong));
    NoiseBatches batches(std::move(batch));
    TrainerConfig config;
    config.precision = precision;
    config.ema.enabled = false;
    Trainer trainer({task, batches}, config);
    bench.measure(
        "spear-tts." + name, [&] { trainer.step(); }, true);
  }

  void generation(Bench& bench, const std::string& precision) const {
    TextToSemanticConfig endless = config_.model;
    endless.speech.end = false;  // so that none of them ends early
    TextToSemantic model(endless);
    model->eval();
    GenerateConfig how;
    how.longest = config_.generated_length;
    how.precision = precision;
    const auto note = [](BenchRow& row, int64_t tokens) {
      row.note = fmt::format("{:.0f} tokens/s", static_cast<double>(tokens) / row.seconds);
    };
    const auto source = [&](int64_t rows) {
      Source made;
      made.ids = text(rows);
      return made;
    };
    for (const int64_t rows : {int64_t{1}, int64_t{4}}) {
      const Source given = source(rows);
      note(bench.measure(fmt::format("spear-tts.generate_{}", rows),
                         [&] {
                           RowDraws draws(1, "bench", rows);
                           generate(model, given, Modality::speech, how, draws);
                         }),
           rows * config_.generated_length);
    }
    const Source one = source(1);
    BeamSearchConfig search;
    search.longest = config_.beam_length;
    search.precision = precision;
    note(bench.measure("spear-tts.beam_4", [&] { beam_search(model, one, Modality::speech, search); }),
         config_.beam_length);
    if (!model->has_early_exit()) return;
    how.sampling.temperature = 0;
    SpeculationReport report;
    BenchRow& row = bench.measure("spear-tts.speculative", [&] {
      RowDraws draws(1, "bench", 1);
      generate_speculatively(model, one, how, {}, draws, &report);
    });
    note(row, config_.generated_length);
    row.note += fmt::format(", {:.0f} % of drafts accepted (untrained)", 100 * report.acceptance());
  }

  SpearBenchConfig config_;
};

}  // namespace

}  // namespace melete::spear_tts

namespace melete {

std::unique_ptr<Benchmark> make_spear_tts_benchmark() {
  return std::make_unique<spear_tts::SpearBenchmark>();
}

}  // namespace melete
