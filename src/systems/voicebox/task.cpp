#include "systems/voicebox/task.h"

#include <fmt/format.h>

#include "config/schema.h"
#include "core/device.h"
#include "data/batch.h"
#include "generate/sampling.h"
#include "nn/frozen.h"
#include "run/sample_writer.h"
#include "systems/voicebox/masks.h"
#include "systems/voicebox/phoneme_frames.h"

namespace melete::voicebox {

namespace {

constexpr int64_t kSamplesShown = 2;
constexpr int64_t kTimeParts = 4;  // validation losses by stretches of the way
constexpr int64_t kWord = 4;       // phonemes that are made from what is around them
constexpr double kVoiceSeconds = 3;

// bool [items, n] where the frames are: true where a row has some; undefined where all rows are whole
at::Tensor valid_frames(const at::Tensor& lengths, const at::Tensor& frames) {
  if (!lengths.defined() || lengths.eq(frames.size(1)).all().item<bool>()) return {};
  return first_frames(sent_to(frames.device(), lengths), frames.size(1));
}

// The draft's error by its name, where there is one: the share of the frames' variance that it does not
// explain. The sum of both losses then is nothing that could be guessed.
Losses with_draft(const FlowLosses& losses) {
  Losses all{losses.total, {}};
  if (losses.draft.defined())
    all.named.emplace_back("draft", losses.draft);
  else
    all.chance = {{"loss", losses.chance}};
  return all;
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
  s.section("distillation", c.distillation, "what is learned from a teacher (distill)");
  melete::describe(s, c.phase);
}

VoiceboxTask::VoiceboxTask(const VoiceboxConfig& model, const TaskConfig& config, const FrameScale& scale,
                           std::shared_ptr<const AudioFeatures> features, nlohmann::ordered_json whole_config,
                           Voicebox teacher, at::Tensor lexicon)
    : config_(config),
      scale_(scale),
      features_(std::move(features)),
      whole_config_(std::move(whole_config)),
      model_(model),
      teacher_(std::move(teacher)),
      lexicon_(std::move(lexicon)) {
  if (teacher_.is_empty()) return;
  const at::NoGradGuard no_grad;
  const auto known = teacher_->named_parameters();
  for (auto& parameter : model_->named_parameters()) parameter.value().copy_(known[parameter.key()]);
}

Voicebox& VoiceboxTask::teacher_on(at::Device device) {
  if (device_of(*teacher_) != device) teacher_->to(device);
  return teacher_;
}

FlowBatch VoiceboxTask::flow_batch(const Batch& batch) const {
  FlowBatch flow;
  flow.frames = batch["frames"];
  flow.valid = valid_frames(batch.find(Batch::length_column("frames")), flow.frames);
  if (model_->told()) flow.tokens = batch["tokens"];
  return flow;
}

std::vector<Phase> VoiceboxTask::phases() {
  Phase phase = make_phase("network", config_.phase);
  NamedTensors drafter, network;  // each clipped by its own norm
  for (auto& parameter : parameters_of(*model_))
    (parameter.first.starts_with("drafter.") ? drafter : network).push_back(std::move(parameter));
  phase.groups = {{"network", std::move(network)}};
  if (!drafter.empty()) phase.groups.push_back({"draft", std::move(drafter)});
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    const FlowBatch flow = flow_batch(batch);
    if (teacher_.is_empty())
      return with_draft(flow_matching_losses(model_, flow, config_.flow, *context.draws));
    Voicebox& teacher = teacher_on(flow.frames.device());
    return Losses{
        distillation_losses(model_, teacher, flow, config_.flow, config_.distillation, *context.draws).total,
        {}};
  };
  return {phase};
}

// Draws of a validation are the same at every step of the run, so its figures can be compared.
Losses VoiceboxTask::validate(const Batch& batch, const StepContext& context) {
  if (!teacher_.is_empty()) return validate_distilled(batch, context);
  FlowMatchingConfig flow = config_.flow;
  flow.condition_drop = 0;
  const FlowLosses losses = flow_matching_losses(model_, flow_batch(batch), flow, *context.draws);
  Losses all = with_draft(losses);
  all.named.emplace_back("loss", losses.rows.mean());
  for (const auto& named : losses_by_time(losses, kTimeParts)) all.named.push_back(named);
  // The same times, with all hidden that sampling hides.
  const FlowBatch whole = flow_batch(batch);
  FlowDraws as_sampled;
  as_sampled.noise = sent_to(whole.frames.device(), context.draws->normal("noise", whole.frames.sizes()));
  as_sampled.times = losses.times;
  as_sampled.hidden = hidden_in_sampling(whole);
  const FlowLosses sampled = flow_matching_losses(model_, whole, flow, as_sampled);
  all.named.emplace_back("loss as sampled", sampled.rows.mean());
  all.chance = {{"loss", losses.chance}, {"loss as sampled", sampled.chance}};
  return all;
}

// What is read is hidden as a whole; what is told nothing goes on from a beginning.
at::Tensor VoiceboxTask::hidden_in_sampling(const FlowBatch& flow) const {
  const int64_t rows = flow.frames.size(0), frames = flow.frames.size(1);
  const at::Tensor hidden = at::ones({rows, frames}, flow.frames.options().dtype(at::kBool));
  if (model_->told()) return hidden;
  const at::Tensor lengths = row_lengths(flow.valid, rows, frames, flow.frames.device());
  return at::arange(frames, lengths.options()).unsqueeze(0) * 3 >= lengths.unsqueeze(1);
}

// Whole sentences read from what is said alone.
Losses VoiceboxTask::validate_distilled(const Batch& batch, const StepContext& context) {
  const Batch some = batch.rows(0, std::min(kSamplesShown, batch.items()));
  const FlowBatch flow = flow_batch(some);
  Voicebox& teacher = teacher_on(flow.frames.device());
  const FlowLosses losses =
      distillation_losses(model_, teacher, flow, config_.flow, config_.distillation, *context.draws);
  Condition condition;
  condition.context = flow.frames;
  condition.tokens = flow.tokens;
  condition.valid = flow.valid;
  condition.hidden =
      at::ones({flow.frames.size(0), flow.frames.size(1)}, flow.frames.options().dtype(at::kBool));
  Losses all{losses.total, {{"loss", losses.total}}};
  for (const DistillationError& error :
       distillation_errors(model_, teacher, condition, config_.distillation.guidance, *context.draws)) {
    all.named.emplace_back(fmt::format("error_at_{}_steps", error.steps), error.student);
    all.named.emplace_back(fmt::format("teacher_at_{}_steps", error.steps), error.teacher);
  }
  return all;
}

// The sentence of a row in the voice of another: frames of that one's beginning stand before it.
// -> [1, frames of the row, frame_dim]
at::Tensor VoiceboxTask::in_voice_of(const FlowBatch& flow, const at::Tensor& lengths, int64_t row,
                                     int64_t voice) {
  const int64_t padded = flow.frames.size(1), tokens = flow.tokens.size(1);
  const auto length = lengths[row].item<int64_t>();
  const auto known = std::min(lengths[voice].item<int64_t>(),
                              static_cast<int64_t>(kVoiceSeconds * features_->frames_per_second()));
  const auto tokens_of = [&](int64_t of, int64_t frames) {  // at their own pace
    return flow.tokens.narrow(0, of, 1).narrow(1, 0, (frames * tokens + padded - 1) / padded);
  };
  Condition condition;
  condition.context = at::cat({flow.frames.narrow(0, voice, 1).narrow(1, 0, known),
                               flow.frames.narrow(0, row, 1).narrow(1, 0, length)},
                              1);
  condition.tokens = at::cat({tokens_of(voice, known), tokens_of(row, length)}, 1);
  condition.hidden = (at::arange(known + length, lengths.options()) >= known).unsqueeze(0);
  RowDraws draws(0, "voicebox", 1, row);
  return sample(model_, condition, config_.sampling, draws).frames.narrow(1, known, length);
}

// What was held out, made again from what is said alone ("read"), so in the voice of the item beside it
// ("other_voice"), and with a word (or, where it is not told phonemes, the middle third) made from what is
// around it ("infilled"); beside them what the frames alone lose on their way back to sound.
void VoiceboxTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  if (!features_) return;
  const auto rate_hz = static_cast<int>(features_->rate_hz());
  const Batch some = batch.rows(0, std::min(kSamplesShown, batch.items()));
  const FlowBatch flow = flow_batch(some);
  const int64_t frames = flow.frames.size(1);
  const at::Tensor lengths = row_lengths(flow.valid, some.items(), frames, flow.frames.device());
  Condition condition;
  condition.context = flow.frames;
  condition.tokens = flow.tokens;
  condition.valid = flow.valid;
  const auto made = [&](const at::Tensor& hidden) {
    condition.hidden = hidden;
    RowDraws draws(0, "voicebox", some.items());
    return features_->decode(scale_.undo(sample(model_, condition, config_.sampling, draws).frames));
  };
  const at::Tensor places = at::arange(frames, lengths.options()).unsqueeze(0) * 3;
  const at::Tensor middle =
      flow.tokens.defined() && flow.tokens.size(1) == frames
          ? phonemes_in_the_middle(flow.tokens, lengths, kWord)
          : at::logical_and(places >= lengths.unsqueeze(1), places < 2 * lengths.unsqueeze(1));
  const at::Tensor copies = features_->decode(scale_.undo(flow.frames));
  const at::Tensor infilled = made(middle);
  const at::Tensor read = model_->told() ? made(at::ones_like(middle)) : at::Tensor();
  for (int64_t row = 0; row < some.items(); ++row) {
    const std::string name = sample_name(some, row);
    const int64_t samples =
        std::min(lengths[row].item<int64_t>() * features_->samples_per_frame(), copies.size(1));
    const auto of_row = [&](const at::Tensor& waves) { return waves[row].narrow(0, 0, samples); };
    const auto write = [&](const at::Tensor& waves, const std::string& how) {
      if (!waves.defined()) return;
      writer.audio(name + how + label, of_row(waves), rate_hz);
      writer.spectrogram_pair(name + how + label, of_row(copies), of_row(waves), rate_hz);
    };
    if (label == "online") writer.audio(name + "_copy", of_row(copies), rate_hz);
    write(infilled, "_infilled_");
    write(read, "_read_");
    if (!model_->told() || some.items() < 2) continue;
    const int64_t voice = (row + 1) % some.items();
    const at::Tensor spoken = features_->decode(scale_.undo(in_voice_of(flow, lengths, row, voice)));
    writer.audio(name + "_other_voice_" + label, spoken[0], rate_hz);
    writer.spectrogram_pair(name + "_other_voice_" + label, of_row(copies), spoken[0], rate_hz);
  }
}

}  // namespace melete::voicebox
