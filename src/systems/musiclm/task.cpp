#include "systems/musiclm/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "data/batch.h"
#include "dist/gather_rows.h"
#include "dist/group.h"
#include "dist/group_member.h"
#include "nn/draws.h"
#include "run/sample_writer.h"
#include "systems/musiclm/retrieval.h"

namespace melete::musiclm {

namespace {

constexpr int64_t kSamplesShown = 4, kTextsShown = 3;
constexpr double kCollapsed = 0.95;  // both towers' crowding above this: nothing tells rows apart any more
const std::vector<int64_t> kRecallAt = {1, 5, 10};

// Both towers' latents as rows: [batch, 2, 1 + layers, dim], and back.
at::Tensor as_rows(const PairLatents& pairs) {
  const auto side = [](const Latents& latents) {
    const at::Tensor values = latents.values.unsqueeze(1).to(at::kFloat);
    return latents.layers.defined() ? at::cat({values, latents.layers.transpose(0, 1).to(at::kFloat)}, 1)
                                    : values;
  };
  return at::stack({side(pairs.audio), side(pairs.text)}, 1);
}

PairLatents from_rows(const at::Tensor& rows) {
  const auto side = [&](int64_t which) {
    const at::Tensor one = rows.select(1, which);  // [batch, 1 + layers, dim]
    Latents latents{one.select(1, 0), {}};
    if (one.size(1) > 1) latents.layers = one.slice(1, 1).transpose(0, 1);
    return latents;
  };
  return {side(0), side(1)};
}

// Shares in [0, 1), one an item; none without draws.
at::Tensor drawn(Draws* draws, const char* what, size_t count) {
  return draws ? draws->uniform(what, {static_cast<int64_t>(count)}) : at::Tensor();
}

// Which of so many the share of an item means; without shares the first.
size_t place_of(const at::Tensor& shares, size_t item, size_t count) {
  if (!shares.defined()) return 0;
  const double share = shares[static_cast<int64_t>(item)].item<double>();
  return std::min(static_cast<size_t>(share * static_cast<double>(count)), count - 1);
}

void add_figures(NamedTensors& named, const std::string& direction, const RetrievalFigures& figures) {
  for (size_t i = 0; i < kRecallAt.size(); ++i)
    named.emplace_back(fmt::format("{}_recall_{}", direction, kRecallAt[i]),
                       at::scalar_tensor(figures.recall[i]));
  named.emplace_back(direction + "_median_rank", at::scalar_tensor(figures.median_rank));
}

}  // namespace

MulanTaskConfig::MulanTaskConfig() {
  phase.optimiser.learning_rate = 3e-4;
  phase.clip_norm = 0.5;
}

void describe(Schema& s, MulanTaskConfig& c) {
  s.option("chunk", c.chunk, "rows that are run at once, so that large batches need little memory; 0: all")
      .at_least(0);
  s.option("templates", c.templates.captions,
           "what captions are put into, {} being the caption; one is drawn for each item");
  s.option("tag_templates", c.templates.tags, "what tags and names of classes are put into");
  melete::describe(s, c.phase);
}

at::Tensor kept_file(const TextTokenizer& tokenizer) {
  const std::string bytes = file_bytes(tokenizer);
  if (bytes.empty()) return {};
  at::Tensor kept = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(kept.data_ptr(), bytes.data(), bytes.size());
  return kept;
}

double chance_of_contrast(const std::string& kind, int64_t n) {
  const auto count = static_cast<double>(n);
  if (n < 2) return 0;
  if (kind == "decoupled") return std::log(count - 1);
  // Every pair said to be a match with the share of matches.
  if (kind == "sigmoid") return std::log(count) + (count - 1) * std::log(count / (count - 1));
  return std::log(count);
}

MulanTask::MulanTask(const MulanConfig& model, const MulanTaskConfig& config,
                     std::shared_ptr<const TextTokenizer> text, int64_t batch_size,
                     nlohmann::ordered_json whole_config)
    : config_(config),
      text_(std::move(text)),
      whole_config_(std::move(whole_config)),
      model_(std::static_pointer_cast<MulanImpl>(std::make_shared<InGroup<MulanImpl>>(model))),
      columns_(batch_size) {
  require(text_ != nullptr, "[mulan] the text tower needs a tokenizer");
  config.templates.check();
  const SpectrogramConfig& spectrogram = model.audio.spectrogram;
  shortest_samples_ = model_->audio->shortest();
  while (stretched_frames(spectrogram.frames(shortest_samples_), 1 / model.audio.augment.stretch) <
         model.audio.patch[1])
    ++shortest_samples_;
}

Group* MulanTask::group() const {
  return dynamic_cast<InGroup<MulanImpl>&>(*model_.ptr()).group();
}

std::vector<Phase> MulanTask::phases() {
  Phase phase = make_phase("mulan", config_.phase);
  phase.groups = {{"mulan", parameters_of(*model_)}};
  phase.loss = [this](const Batch& batch, const StepContext& context) { return losses(batch, context); };
  return {phase};
}

std::vector<std::vector<Label>> MulanTask::labels(const Batch& batch) const {
  const std::vector<std::string> captions = batch.find_words("text"), tags = batch.find_words("tags");
  std::vector<std::vector<Label>> all;
  for (size_t i = 0; i < static_cast<size_t>(batch.items()); ++i) {
    all.push_back(labels_of(i < captions.size() ? captions[i] : "",
                            i < tags.size() ? tags_in(tags[i]) : std::vector<std::string>()));
    if (all.back().empty()) all.back() = {Label()};  // which the tokenizer will refuse by name
  }
  return all;
}

MulanTask::Pairs MulanTask::pairs(const Batch& batch, Draws* draws, bool distinct) const {
  const std::vector<std::vector<Label>> choices = labels(batch);
  std::vector<int64_t> rows;
  std::set<std::string> seen;
  for (size_t i = 0; i < choices.size(); ++i)
    if (seen.insert(choices[i].front().words).second || !distinct) rows.push_back(static_cast<int64_t>(i));
  if (rows.size() < 2)  // one text for all: nothing can be found, and the figures will say so
    for (rows.clear(); rows.size() < choices.size();) rows.push_back(static_cast<int64_t>(rows.size()));

  Pairs result;
  const at::Tensor& wave = batch["wave"];
  const at::Tensor chosen = at::tensor(rows, at::kLong);
  result.audio.audio = wave.index_select(0, sent_to(wave.device(), chosen));
  result.audio.lengths =
      batch.lengths("wave").to(at::kCPU).index_select(0, chosen).clamp_min(shortest_samples_);
  // A recording shorter than a patch counts with the silence after it.
  if (const int64_t missing = shortest_samples_ - wave.size(1); missing > 0)
    result.audio.audio = at::constant_pad_nd(result.audio.audio, {0, missing});
  if (result.audio.lengths.ge(result.audio.audio.size(1)).all().item<bool>())
    result.audio.lengths = at::Tensor();  // all whole
  const Templates& templates = config_.templates;
  const bool choose =
      std::any_of(choices.begin(), choices.end(), [](const auto& of) { return of.size() > 1; });
  const at::Tensor label = drawn(choose ? draws : nullptr, "labels", rows.size());
  const at::Tensor around = drawn(
      templates.captions.size() > 1 || templates.tags.size() > 1 ? draws : nullptr, "templates", rows.size());
  const std::vector<std::string> paths = batch.find_words("path");
  std::vector<std::string> texts, names;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    const Label& said = choices[row][place_of(label, i, choices[row].size())];
    const std::vector<std::string>& known = templates.of(said);
    result.words.push_back(said.words);
    texts.push_back(in_template(known[place_of(around, i, known.size())], said.words));
    if (!paths.empty()) names.push_back(paths[row]);
  }
  const TokenizedTexts tokens = tokenize(*text_, texts, model_->config().text.window, names);
  result.text = {sent_to(wave.device(), tokens.input.ids), sent_to(wave.device(), tokens.input.mask)};
  result.cut = tokens.cut;
  return result;
}

Losses MulanTask::losses(const Batch& batch, const StepContext& context) {
  const Pairs given = pairs(batch, context.draws, false);
  const PairLatents own = model_->embed_pairs(given.audio, given.text, context.draws, config_.chunk);
  const int64_t rows = given.audio.batch();
  MulanLosses made;
  columns_ = rows;
  if (Group* ranks = group()) {
    // One gather of everything, so that there is one collective on the way back.
    const at::Tensor mine = as_rows(own);
    const GatheredRows gathered = gather_rows(*ranks, mine.flatten(1));
    std::vector<int64_t> shape = mine.sizes().vec();
    shape[0] = columns_ = gathered.all.size(0);
    const PairLatents all = from_rows(gathered.all.view(shape));
    made = model_->losses(own, &all, gathered.first_row);
  } else {
    made = model_->losses(own);
  }
  // The model's losses add up over ranks; the loop takes a mean that counts every rank's items.
  const double share = static_cast<double>(columns_) / static_cast<double>(rows);
  Losses result{made.total * share, {}};
  if (made.layers.defined()) {
    result.named.emplace_back("contrast", made.contrast.detach() * share);
    result.named.emplace_back("layers", made.layers.detach() * share);
  }
  result.named.emplace_back("temperature", model_->contrast->log_scale.detach().neg().exp().mean());
  if (given.cut > 0)
    result.named.emplace_back("texts_cut",
                              at::scalar_tensor(static_cast<double>(given.cut) / static_cast<double>(rows)));
  return result;
}

Losses MulanTask::validate(const Batch& batch, const StepContext& /*context*/) {
  const Pairs given = pairs(batch, nullptr, true);
  const PairLatents latents = model_->embed_pairs(given.audio, given.text, nullptr, config_.chunk);
  const MulanLosses made = model_->losses(latents);
  columns_ = given.audio.batch();
  Losses result{made.total, {{"loss", made.total}}};
  if (made.layers.defined()) {
    result.named.emplace_back("contrast", made.contrast);
    result.named.emplace_back("layers", made.layers);
  }
  result.named.emplace_back("texts_cut", at::scalar_tensor(static_cast<double>(given.cut) /
                                                           static_cast<double>(given.audio.batch())));
  // In double: half precision would make ties.
  const at::Tensor audio = latents.audio.values.to(at::kDouble), text = latents.text.values.to(at::kDouble);
  add_figures(result.named, "text_to_audio", retrieval(text, audio, kRecallAt));
  add_figures(result.named, "audio_to_text", retrieval(audio, text, kRecallAt));
  const double audio_alike = crowding(audio), text_alike = crowding(text);
  result.named.emplace_back("audio_alike", at::scalar_tensor(audio_alike));
  result.named.emplace_back("text_alike", at::scalar_tensor(text_alike));
  const bool collapsed = audio_alike > kCollapsed && text_alike > kCollapsed;
  result.named.emplace_back("COLLAPSED", at::scalar_tensor(collapsed ? 1.0 : 0.0));
  result.named.emplace_back("temperature", model_->contrast->log_scale.detach().neg().exp().mean());
  return result;
}

void MulanTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  const Pairs given = pairs(batch, nullptr, true);
  const PairLatents latents = model_->embed_pairs(given.audio, given.text, nullptr, config_.chunk);
  const at::Tensor audio = latents.audio.values.to(at::kCPU, at::kDouble),
                   text = latents.text.values.to(at::kCPU, at::kDouble);
  const at::Tensor scores = at::mm(audio, text.t());
  std::string lines;
  if (crowding(audio) > kCollapsed && crowding(text) > kCollapsed)
    lines += "COLLAPSED: both towers give nearly the same vector for everything\n\n";
  const int64_t count = given.audio.batch();
  for (int64_t row = 0; row < std::min(kSamplesShown, count); ++row) {
    const auto [best, places] = scores[row].topk(std::min(kTextsShown, count));
    lines += fmt::format("{:+.3f}  its own: {}\n", scores[row][row].item<double>(),
                         given.words[static_cast<size_t>(row)]);
    for (int64_t i = 0; i < best.size(0); ++i)
      lines += fmt::format("{:+.3f}  {}. {}\n", best[i].item<double>(), i + 1,
                           given.words[static_cast<size_t>(places[i].item<int64_t>())]);
    lines += "\n";
    if (label == "online")
      writer.original(fmt::format("pair_{}", row), given.audio.audio[row],
                      static_cast<int>(model_->config().sample_rate_hz));
  }
  writer.text("texts_of_recordings_" + label, lines);
}

std::map<std::string, double> MulanTask::chance_levels() const {
  const MulanConfig& config = model_->config();
  const double one = chance_of_contrast(config.contrast.kind, columns_);
  const auto layers = static_cast<double>(model_->contrast_layers());
  std::map<std::string, double> levels{{"loss", one * (1 + layers)}};
  if (layers > 0) {
    levels["contrast"] = one;
    levels["layers"] = one * layers;
  }
  const RetrievalFigures guessed = retrieval_by_chance(columns_, kRecallAt);
  for (const char* direction : {"text_to_audio", "audio_to_text"}) {
    for (size_t i = 0; i < kRecallAt.size(); ++i)
      levels[fmt::format("{}_recall_{}", direction, kRecallAt[i])] = guessed.recall[i];
    levels[std::string(direction) + "_median_rank"] = guessed.median_rank;
  }
  return levels;
}

void MulanTask::save_state(TensorMap& tensors) const {
  if (const at::Tensor kept = kept_file(*text_); kept.defined()) tensors["text.pieces"] = kept;
}

}  // namespace melete::musiclm
