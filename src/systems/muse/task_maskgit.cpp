#include "systems/muse/task_maskgit.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/batch.h"
#include "data/pictures.h"
#include "generate/sampling.h"
#include "run/sample_faults.h"
#include "run/sample_writer.h"
#include "systems/muse/guided_maskgit.h"
#include "systems/muse/system.h"

namespace melete::muse {

namespace {

constexpr int64_t kPicturesShown = 8;
constexpr int64_t kQuarters = 4;  // of masking ratios that losses are told apart by

// "loss_25": of pictures of which up to a quarter was hidden, "loss_50", "loss_75", "loss_100"; those that
// there are.
void add_by_hidden_share(NamedTensors& named, const MaskGitImpl::Losses& losses) {
  const at::Tensor quarter = (losses.hidden_share * kQuarters).ceil().clamp(1, kQuarters);
  for (int64_t i = 1; i <= kQuarters; ++i) {
    const at::Tensor chosen = losses.by_picture.index({quarter.eq(i)});
    if (chosen.numel() > 0) named.emplace_back(fmt::format("loss_{}", 100 * i / kQuarters), chosen.mean());
  }
}

}  // namespace

MaskGitTaskConfig::MaskGitTaskConfig() {
  phase.optimiser.learning_rate = 3e-4;
  phase.schedule.warmup_steps = 1000;
  phase.schedule.kind = "cosine";
  phase.clip_norm = 1;
}

void describe(Schema& s, MaskGitTaskConfig& c) {
  melete::describe(s, c.phase);
  s.option("guidance", c.guidance, "of samples: how far beyond what it would say without the text; 1: none");
  s.section("decoding", c.decoding, "of samples");
}

MaskGitTask::MaskGitTask(const TextedMaskGitConfig& model, const MaskGitTaskConfig& config,
                         SamplePictures samples, nlohmann::ordered_json whole_config)
    : config_(config), samples_(std::move(samples)), whole_config_(std::move(whole_config)), model_(model) {}

std::string MaskGitTask::name() const {
  return kMaskGitTask;
}

MaskGitImpl::Batch MaskGitTask::input(const Batch& batch, Draws* draws) {
  MaskGitImpl::Batch input;
  input.tokens = batch["tokens"];
  input.condition = batch.find("condition");
  input.text = model_->text(batch.find_words("text"), batch.find("text_features"), draws);
  return input;
}

std::vector<Phase> MaskGitTask::phases() {
  Phase phase = make_phase("transformer", config_.phase);
  phase.groups = {{"maskgit", parameters_of(*model_->maskgit, "maskgit.")}};
  if (!model_->text_encoder.is_empty())
    phase.groups.push_back({"text_encoder", parameters_of(*model_->text_encoder, "text_encoder.")});
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    const auto result = model_->maskgit->losses(input(batch, context.draws), *context.draws);
    return Losses{result.total, result.named};
  };
  return {phase};
}

Losses MaskGitTask::validate(const Batch& batch, const StepContext& context) {
  const MaskGitImpl::Batch seen = input(batch, nullptr);
  // The same tokens are hidden with every text and with none, so that the difference is the text's.
  const auto key = static_cast<uint64_t>(context.draws->integer("validation", 0, int64_t{1} << 62));
  SeededDraws draws(key), same(key);
  const auto with_text = model_->maskgit->losses(seen, draws, false, -1, 0);
  const auto without = model_->maskgit->losses(seen, same, true, -1, 1);
  const at::Tensor prediction = with_text.named.front().second;
  Losses all{with_text.total, {{"loss", prediction}}};
  for (const auto& [name, value] : with_text.named)
    if (name != "prediction") all.named.emplace_back(name, value);
  add_by_hidden_share(all.named, with_text);
  all.named.emplace_back("text_gain", without.total.detach() - prediction);
  return all;
}

// Two a row: the picture that has the caption, as its tokens show it, and what the caption makes.
void MaskGitTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  if (!samples_.tokenizer) return;
  const Batch some = batch.rows(0, std::min(kPicturesShown, batch.items()));
  const MaskGitImpl::Batch seen = input(some, nullptr);
  Guidance guidance;
  guidance.scale = config_.guidance;
  GuidedMaskGit guided(model_->maskgit, seen.text, {}, seen.condition, guidance);
  MaskingStart start;
  start.tokens = at::full_like(seen.tokens, guided.mask_token());
  RowDraws draws(0, "samples", some.items());
  const at::Tensor made = decode_masked(guided, start, config_.decoding, draws);

  const auto shown = [&](const at::Tensor& tokens) {
    return samples_.tokenizer->pictures(tokens.cpu(), samples_.height, samples_.width).clamp(0, 1);
  };
  const at::Tensor real = shown(seen.tokens), fake = shown(made);
  const std::vector<std::string> captions = some.find_words("text");
  std::string text;
  for (size_t i = 0; i < captions.size() && static_cast<int64_t>(i) < some.items(); ++i)
    text += fmt::format("{}: {}\n", i + 1, captions[i]);
  if (const std::string fault = fault_of_pictures(fake); !fault.empty())
    text += fmt::format("WARNING: the samples are {}\n", fault);
  writer.picture_pairs("samples_" + label, real, fake);
  writer.text("samples_" + label, text);
}

std::map<std::string, double> MaskGitTask::chance_levels() const {
  const auto tokens = static_cast<double>(model_->config().maskgit.transformer.tokens);
  return {{"loss", std::log(tokens)}, {"prediction", std::log(tokens)}, {"accuracy", 1 / tokens}};
}

}  // namespace melete::muse
