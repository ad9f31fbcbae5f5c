#include "systems/muse/task_maskgit.h"

#include <fmt/ranges.h>

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

// "loss_25", "accuracy_25": of the hidden tokens of pictures of which up to a quarter was hidden; and so on,
// where there are such pictures.
std::string of_quarter(const char* figure, int64_t quarter) {
  return fmt::format("{}_{}", figure, 100 * quarter / kQuarters);
}

void add_by_hidden_share(Losses& all, const MaskGitImpl::Losses& losses) {
  const auto positions = static_cast<double>(losses.masked.labels.size(1));
  const at::Tensor quarter = (losses.asked * kQuarters / positions).ceil().clamp(1, kQuarters);
  for (int64_t i = 1; i <= kQuarters; ++i) {
    const at::Tensor chosen = quarter.eq(i).to(at::kFloat), asked = losses.asked * chosen;
    const at::Tensor tokens = asked.sum();
    if (tokens.item<double>() == 0) continue;
    all.named.emplace_back(of_quarter("loss", i), (losses.by_picture * asked).sum() / tokens);
    all.named.emplace_back(of_quarter("accuracy", i), (losses.right * chosen).sum() / tokens);
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
  s.option("prompts", c.prompts, "texts that samples are made of, beside captions of held-out pictures");
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
  MaskGitImpl::LossOptions kept, dropped;
  kept.text_drop = 0;
  dropped.text_drop = 1;
  dropped.only_prediction = true;
  const auto with_text = model_->maskgit->losses(seen, draws, kept);
  const auto without = model_->maskgit->losses(seen, same, dropped);
  const at::Tensor prediction = with_text.named.front().second;
  Losses all{with_text.total, {{"loss", prediction}}};
  for (const auto& [name, value] : with_text.named)
    if (name != "prediction") all.named.emplace_back(name, value);
  all.named.emplace_back("text_gain", without.total.detach() - prediction);
  add_by_hidden_share(all, with_text);
  return all;
}

at::Tensor MaskGitTask::shown(const at::Tensor& tokens) const {
  return samples_.tokenizer->pictures(tokens.cpu(), samples_.height, samples_.width).clamp(0, 1);
}

at::Tensor MaskGitTask::sample(const at::Tensor& text, const at::Tensor& condition, int64_t positions,
                               const std::string& draws_for) {
  Guidance guidance;
  guidance.scale = config_.guidance;
  GuidedMaskGit guided(model_->maskgit, text, {}, condition, guidance);
  MaskingStart start;
  start.tokens = at::full({text.size(0), positions}, guided.mask_token(), text.options().dtype(at::kLong));
  RowDraws draws(0, draws_for, text.size(0));
  return shown(decode_masked(guided, start, config_.decoding, draws));
}

// Two a row: the picture that has the caption, as its tokens show it, and what the caption makes. Then what
// the prompts make, each of them once.
void MaskGitTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  if (!samples_.tokenizer) return;
  const Batch some = batch.rows(0, std::min(kPicturesShown, batch.items()));
  const MaskGitImpl::Batch seen = input(some, nullptr);
  const at::Tensor real = shown(seen.tokens),
                   fake = sample(seen.text, seen.condition, seen.tokens.size(1), "samples");
  const std::vector<std::string> captions = some.find_words("text");
  std::string text;
  for (size_t i = 0; i < captions.size() && static_cast<int64_t>(i) < some.items(); ++i)
    text += fmt::format("{}: {}\n", i + 1, captions[i]);
  if (const std::string fault = fault_of_pictures(fake); !fault.empty())
    text += fmt::format("WARNING: the samples are {}\n", fault);
  writer.picture_pairs("samples_" + label, real, fake);
  writer.text("samples_" + label, text);
  if (config_.prompts.empty()) return;
  const at::Tensor features = samples_.text
                                  ? samples_.text->encode(config_.prompts).embeddings.to(seen.tokens.device())
                                  : at::Tensor();
  const at::Tensor asked =
      sample(model_->text(config_.prompts, features), {}, seen.tokens.size(1), "prompts");
  writer.pictures("prompts_" + label, asked);
  writer.text("prompts_" + label, fmt::format("{}\n", fmt::join(config_.prompts, "\n")));
}

std::map<std::string, double> MaskGitTask::chance_levels() const {
  const auto tokens = static_cast<double>(model_->config().maskgit.transformer.tokens);
  std::map<std::string, double> levels = {{"prediction", std::log(tokens)}};
  for (const auto& [figure, level] : {std::pair{"loss", std::log(tokens)}, {"accuracy", 1 / tokens}}) {
    levels[figure] = level;
    for (int64_t i = 1; i <= kQuarters; ++i) levels[of_quarter(figure, i)] = level;
  }
  return levels;
}

}  // namespace melete::muse
