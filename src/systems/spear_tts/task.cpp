#include "systems/spear_tts/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/batch.h"
#include "dist/gather_rows.h"
#include "dist/group_member.h"
#include "generate/sampling.h"
#include "run/sample_writer.h"
#include "systems/spear_tts/generate.h"
#include "systems/spear_tts/reading.h"
#include "systems/spear_tts/training.h"

namespace melete::spear_tts {

namespace {

constexpr int64_t kSamplesShown = 4;
// A model that never ends must not hold up the run.
constexpr int64_t kLongestSample = 512;

// A row's tokens without padding and ends.
std::vector<int64_t> tokens_of(const at::Tensor& row, int64_t end) {
  const at::Tensor plain = row.to(at::kCPU, at::kLong).contiguous();
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < plain.numel(); ++i) {
    const int64_t token = plain.data_ptr<int64_t>()[i];
    if (token == end) break;
    if (token >= 0) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace

TaskConfig::TaskConfig() {
  phase.optimiser.learning_rate = 3e-4;
  phase.schedule.warmup_steps = 1000;
  phase.schedule.kind = "cosine";
  phase.clip_norm = 0.5;
}

void describe(Schema& s, TaskConfig& c) {
  s.section("loss", c.loss, "what is learned");
  s.section("deletion", c.deletion, "pretraining: what is taken away");
  s.option(
      "freeze", c.freeze,
      "speech to text keeps what it has learned to hear, text to speech what it has learned to say; false: "
      "everything moves, as it must without a stage before");
  s.option("frozen_encoder_layers", c.frozen_encoder_layers, "text to speech: the lowest so many do not move")
      .at_least(0);
  s.option("read_items", c.read_items, "items of a validation that are decoded to count errors; 0: none")
      .at_least(0);
  melete::describe(s, c.phase);
}

SpearTask::SpearTask(std::string name, Direction direction, const TextToSemanticConfig& model,
                     const TaskConfig& config, std::shared_ptr<const TextTokenizer> text,
                     nlohmann::ordered_json whole_config)
    : name_(std::move(name)),
      direction_(direction),
      config_(config),
      text_(std::move(text)),
      whole_config_(std::move(whole_config)),
      model_(std::static_pointer_cast<TextToSemanticImpl>(
          std::make_shared<InGroup<TextToSemanticImpl>>(model))) {}

std::vector<Phase> SpearTask::phases() {
  Phase phase = make_phase("model", config_.phase);
  const Direction moved = config_.freeze ? direction_ : kSpeechToSpeech;  // which moves everything
  phase.groups = {{"model", trained_parameters(*model_, moved, config_.frozen_encoder_layers)}};
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    LossPass pass;
    pass.condition_drop = model_->config().condition_drop;
    pass.training = true;
    pass.draws = context.draws;
    // Upstream's coin, which decides whether there is an alignment, is each rank's own.
    Group* const group = dynamic_cast<InGroup<TextToSemanticImpl>&>(*model_.ptr()).group();
    if (group != nullptr && !config_.loss.as_upstream)
      pass.gather = [group](const at::Tensor& rows) { return gather_rows(*group, rows).all; };
    return losses(batch, pass);
  };
  return {phase};
}

Losses SpearTask::losses(const Batch& batch, LossPass pass) {
  pass.early_exit = direction_ == kTextToSpeech && model_->has_early_exit();
  // An early exit guesses the same tokens once more.
  const double guesses = 1 + (pass.early_exit ? config_.loss.early_exit_weight : 0);
  const auto told = [&](const PairLosses& result) {
    return Losses{result.total, result.named, {{"loss", at::scalar_tensor(guesses * loss_of_guessing())}}};
  };
  if (direction_ == kSpeechToSpeech)
    return told(pretraining_losses(model_, batch.on_host("semantic"), config_.deletion, config_.loss, pass));
  const at::Tensor &speech = batch["semantic"], &text = batch["text"];
  const bool reads = direction_ == kSpeechToText;
  return told(pair_losses(model_, {reads ? speech : text, reads ? text : speech, direction_, {}, {}},
                          config_.loss, pass));
}

Losses SpearTask::validate(const Batch& batch, const StepContext& context) {
  LossPass pass;
  pass.draws = context.draws;
  Losses all = losses(batch, pass);
  all.named.insert(all.named.begin(), {"loss", all.total});
  // So many of the first batches together.
  const int64_t rows = std::min(config_.read_items - context.micro_batch * batch.items(), batch.items());
  if (direction_ == kSpeechToText && rows > 0) {
    ReadingErrors by_character, by_word;
    const std::vector<std::string> truth = batch.words("text");
    const auto read = translated(batch, rows);
    for (size_t i = 0; i < read.size(); ++i) {
      by_character += character_errors(text_->text(read[i]), truth[i]);
      by_word += word_errors(text_->text(read[i]), truth[i]);
    }
    all.named.emplace_back("character_error", at::scalar_tensor(by_character.share()));
    all.named.emplace_back("word_error", at::scalar_tensor(by_word.share()));
  }
  return all;
}

std::vector<std::vector<int64_t>> SpearTask::translated(const Batch& batch, int64_t rows) {
  const Batch some = batch.rows(0, rows);
  GenerateConfig how;
  how.sampling.temperature = 0;
  how.sampling.guidance = 1;
  how.longest = kLongestSample;
  const bool from_text = direction_.source == Modality::text;
  RowDraws draws(0, "translation", rows);
  Source source;
  source.ids = some[from_text ? "text" : "semantic"];
  source.modality = direction_.source;
  const Generated made = generate(model_, source, direction_.target, how, draws);
  std::vector<std::vector<int64_t>> result;
  for (int64_t row = 0; row < rows; ++row)
    result.push_back(tokens_of(made.tokens[row], model_->vocabulary(direction_.target).end_id()));
  return result;
}

void SpearTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  if (direction_ == kSpeechToSpeech) return;
  const int64_t rows = std::min(kSamplesShown, batch.items());
  const auto made = translated(batch, rows);
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    const std::string& truth = batch.words("text")[at];
    const std::string text =
        direction_ == kSpeechToText
            ? fmt::format("written: {}\nread:    {}\n", truth, text_->text(made[at]))
            : fmt::format("text:   {}\ntokens: {}\nspoken: {}\n", truth, fmt::join(made[at], " "),
                          fmt::join(tokens_of(batch["semantic"][row], -1), " "));
    writer.text(sample_name(batch, row) + "_" + label, text);
  }
}

double SpearTask::loss_of_guessing() const {
  return std::log(
      static_cast<double>(const_cast<TextToSemantic&>(model_)->vocabulary(direction_.target).classes()));
}

std::map<std::string, double> SpearTask::chance_levels() const {
  const double loss = loss_of_guessing(), accuracy = std::exp(-loss);
  const std::string target(name_of(direction_.target));
  std::map<std::string, double> levels{{"loss", loss}, {target, loss}, {target + "_accuracy", accuracy}};
  if (direction_ == kTextToSpeech && model_->has_early_exit())
    levels.insert({{"early_exit", loss}, {"early_exit_accuracy", accuracy}});
  return levels;
}

MainFigure SpearTask::main_figure() const {
  if (direction_ == kSpeechToText && config_.read_items > 0) return {"character_error", false};
  return {};
}

void SpearTask::save_state(TensorMap& tensors) const {
  const std::string bytes = file_bytes(*text_);
  if (bytes.empty()) return;
  at::Tensor kept = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(kept.data_ptr(), bytes.data(), bytes.size());
  tensors["text.pieces"] = kept;
}

}  // namespace melete::spear_tts
