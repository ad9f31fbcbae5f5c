#include "systems/voicebox/task.h"

#include "config/schema.h"
#include "data/batch.h"
#include "generate/sampling.h"
#include "run/sample_writer.h"

namespace melete::voicebox {

namespace {

constexpr int64_t kSamplesShown = 2;
constexpr int64_t kTimeParts = 4;  // validation losses by stretches of the way

// bool [items, n]: true where a row has frames; undefined where all rows are whole
at::Tensor frames_there(const at::Tensor& lengths, int64_t frames) {
  if (!lengths.defined() || lengths.eq(frames).all().item<bool>()) return {};
  return at::arange(frames, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1);
}

}  // namespace

TaskConfig::TaskConfig() {
  phase.optimiser.learning_rate = 3e-4;
  phase.schedule.warmup_steps = 5000;
  phase.schedule.kind = "cosine";
  phase.clip_norm = 0.5;
}

void describe(Schema& s, TaskConfig& c) {
  s.section("flow", c.flow, "what is learned");
  s.section("sampling", c.sampling, "how samples are made");
  melete::describe(s, c.phase);
}

VoiceboxTask::VoiceboxTask(const VoiceboxConfig& model, const TaskConfig& config, const FrameScale& scale,
                           std::shared_ptr<const AudioFeatures> features, nlohmann::ordered_json whole_config)
    : config_(config),
      scale_(scale),
      features_(std::move(features)),
      whole_config_(std::move(whole_config)),
      model_(model) {}

FlowBatch VoiceboxTask::flow_batch(const Batch& batch) const {
  FlowBatch flow;
  flow.frames = batch["frames"];
  flow.valid = frames_there(batch.find(Batch::length_column("frames")), flow.frames.size(1));
  if (model_->told()) flow.tokens = batch["semantic"];
  return flow;
}

std::vector<Phase> VoiceboxTask::phases() {
  Phase phase = make_phase("network", config_.phase);
  phase.groups = {{"network", parameters_of(*model_)}};
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    const FlowLosses losses = flow_matching_losses(model_, flow_batch(batch), config_.flow, *context.draws);
    return Losses{losses.total, {}};
  };
  return {phase};
}

// Draws of a validation are the same at every step of the run, so its figures can be compared.
Losses VoiceboxTask::validate(const Batch& batch, const StepContext& context) {
  FlowMatchingConfig flow = config_.flow;
  flow.condition_drop = 0;
  const FlowLosses losses = flow_matching_losses(model_, flow_batch(batch), flow, *context.draws);
  Losses all{losses.total, {{"loss", losses.total}}};
  for (const auto& named : losses_by_time(losses, kTimeParts)) all.named.push_back(named);
  return all;
}

// The second half of what was held out, made from its first half and what is said; beside it what the frames
// alone lose on their way back to sound.
void VoiceboxTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  if (!features_) return;
  const auto rate_hz = static_cast<int>(features_->rate_hz());
  const Batch some = batch.rows(0, std::min(kSamplesShown, batch.items()));
  const FlowBatch flow = flow_batch(some);
  Condition condition;
  condition.context = flow.frames;
  condition.tokens = flow.tokens;
  condition.valid = flow.valid;
  condition.hidden = at::zeros({some.items(), flow.frames.size(1)}, flow.frames.options().dtype(at::kBool));
  const int64_t half = flow.frames.size(1) / 2;
  condition.hidden.narrow(1, half, flow.frames.size(1) - half).fill_(true);
  RowDraws draws(0, "voicebox", some.items());
  const at::Tensor made = sample(model_, condition, config_.sampling, draws).frames;
  const auto sound = [&](const at::Tensor& frames) { return features_->decode(scale_.undo(frames)); };
  const at::Tensor copies = sound(flow.frames), waves = sound(made);
  for (int64_t row = 0; row < some.items(); ++row) {
    const std::string name = sample_name(some, row);
    if (label == "online") writer.audio(name + "_copy", copies[row], rate_hz);
    writer.audio(name + "_" + label, waves[row], rate_hz);
    writer.spectrogram_pair(name + "_" + label, copies[row], waves[row], rate_hz);
  }
}

}  // namespace melete::voicebox
