#include "systems/voicebox/task_duration.h"

#include <fmt/format.h>

#include "config/schema.h"
#include "core/device.h"
#include "data/batch.h"
#include "run/sample_writer.h"
#include "systems/voicebox/masks.h"

namespace melete::voicebox {

namespace {

DurationInput duration_input(const Batch& batch) {
  DurationInput input;
  input.phonemes = batch["phonemes"];
  input.valid = input.phonemes >= 0;
  input.condition = batch["durations"].unsqueeze(2);
  return input;
}

}  // namespace

DurationTaskConfig::DurationTaskConfig() {
  phase.optimiser.learning_rate = 3e-4;
  phase.schedule.warmup_steps = 100;
  phase.schedule.kind = "cosine";
  phase.clip_norm = 1;
}

void describe(Schema& s, DurationTaskConfig& c) {
  s.section("hiding", c.hiding, "which durations it has to guess");
  melete::describe(s, c.phase);
}

DurationTask::DurationTask(const DurationConfig& model, const DurationTaskConfig& config,
                           nlohmann::ordered_json whole_config)
    : config_(config), whole_config_(std::move(whole_config)), model_(model) {}

std::vector<Phase> DurationTask::phases() {
  Phase phase = make_phase("predictor", config_.phase);
  phase.groups = {{"predictor", parameters_of(*model_)}};
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    DurationInput input = duration_input(batch);
    const int64_t rows = batch.items();
    input.hidden = hidden_durations(input.valid, config_.hiding, *context.draws);
    if (config_.hiding.condition_drop > 0) {
      input.dropped = sent_to(input.phonemes.device(), chance_mask({rows}, config_.hiding.condition_drop,
                                                                   "condition_drop", *context.draws));
      // Who is told nothing has everything to guess.
      input.hidden = at::logical_or(input.hidden, input.dropped.unsqueeze(1));
    }
    const DurationLosses losses = duration_losses(model_, input, batch["durations"], context.draws);
    return Losses{losses.total, {}, {{"loss", losses.chance}}};
  };
  return {phase};
}

Losses DurationTask::validate(const Batch& batch, const StepContext&) {
  DurationInput input = duration_input(batch);
  input.hidden = at::ones_like(input.valid);
  const DurationLosses losses = duration_losses(model_, input, batch["durations"]);
  const at::Tensor real = batch["durations"].masked_select(input.valid);
  return {losses.total,
          {{"loss", losses.total}, {"error_of_the_mean", (real - real.mean()).abs().mean()}},
          {{"loss", losses.chance}}};
}

void DurationTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  const Batch first = batch.rows(0, 1);
  DurationInput input = duration_input(first);
  input.hidden = at::ones_like(input.valid);
  const at::Tensor guessed = model_->forward(input)[0], real = first["durations"][0];
  std::string lines = "phoneme  guessed  real\n";
  for (int64_t i = 0; i < input.valid[0].sum().item<int64_t>(); ++i)
    lines += fmt::format("{:7}  {:7.1f}  {:4.0f}\n", input.phonemes[0][i].item<int64_t>(),
                         guessed[i].item<double>(), real[i].item<double>());
  writer.text(sample_name(first, 0) + "_" + label, lines);
}

}  // namespace melete::voicebox
