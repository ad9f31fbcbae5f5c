#include "systems/spear_tts/text_to_tokens.h"

#include <chrono>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/batch.h"
#include "nn/frozen.h"
#include "systems/spear_tts/back_translation.h"
#include "systems/spear_tts/tokens.h"

namespace melete::spear_tts {

void describe(Schema& s, TextToTokensConfig& c) {
  s.option("beam", c.beam, "search along so many sequences for the likeliest; 0: draw one").at_least(0);
  s.option("speculative", c.speculative, "draft with the early exit; the tokens are the same, sooner");
  s.option("drafts", c.speculation.drafts, "speculative: tokens that are drafted at a time").at_least(1);
  s.option("batch", c.batch, "sentences at once; each ends for itself").at_least(1).at_most(1024);
  describe(s, c.how);
}

namespace {

Generated write(Reader& reader, const Source& source, const TextToTokensConfig& config, Draws& draws,
                SpeculationReport& speculation) {
  if (config.beam > 0) {
    BeamSearchConfig how;
    how.beam.beams = config.beam;
    how.guidance = config.how.sampling.guidance;
    how.longest = config.how.longest;
    how.precision = config.how.precision;
    return beam_search(reader.model, source, Modality::speech, how);
  }
  if (!config.speculative) return generate(reader.model, source, Modality::speech, config.how, draws);
  require(reader.model->has_early_exit(),
          "[speculative] this model has no early exit to draft with; train one with model.early_exit_layer");
  SpeculationReport own;
  const Generated made =
      generate_speculatively(reader.model, source, config.how, config.speculation, draws, &own);
  speculation.drafted += own.drafted;
  speculation.accepted += own.accepted;
  speculation.rounds += own.rounds;
  return made;
}

}  // namespace

std::vector<at::Tensor> text_to_tokens(Reader& reader, const std::vector<std::string>& texts,
                                       const TextToTokensConfig& config, uint64_t seed,
                                       TextToTokensReport* report,
                                       const std::function<void(int64_t done, int64_t of)>& progress) {
  const at::NoGradGuard no_grad;
  const auto begin = std::chrono::steady_clock::now();
  TextToTokensReport done;
  std::vector<at::Tensor> result;
  const auto count = static_cast<int64_t>(texts.size());
  for (int64_t first = 0; first < count; first += config.batch) {
    std::vector<Item> rows(static_cast<size_t>(std::min(config.batch, count - first)));
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i].add("ids", at::tensor(reader.text->pieces(texts[static_cast<size_t>(first) + i]), at::kLong));
    Source source;
    source.ids = collate(rows)["ids"].to(device_of(*reader.model));
    source.modality = Modality::text;
    RowDraws draws(seed, "spear-tts", source.ids.size(0), first);
    const at::Tensor written = write(reader, source, config, draws, done.speculation).tokens.to(at::kCPU);
    const int64_t end = reader.model->speech->end_id();
    for (int64_t i = 0; i < source.ids.size(0); ++i) {
      const at::Tensor row = written[i];
      result.push_back(row.masked_select(row.ge(0).logical_and(row.ne(end))));
      done.tokens += row.ge(0).sum().item<int64_t>();
    }
    if (progress) progress(static_cast<int64_t>(result.size()), count);
  }
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (report != nullptr) *report = done;
  return result;
}

std::vector<std::string> tokens_to_text(Reader& reader, const std::vector<at::Tensor>& tokens,
                                        int64_t batch) {
  constexpr int64_t kLettersPerToken = 2, kLeastLetters = 16;  // a model that never ends must not hold up
  const at::NoGradGuard no_grad;
  GenerateConfig how;
  how.sampling.temperature = 0;
  std::vector<std::string> texts;
  const auto count = static_cast<int64_t>(tokens.size());
  for (int64_t first = 0; first < count; first += batch) {
    std::vector<Item> rows(static_cast<size_t>(std::min(batch, count - first)));
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i].add("ids", tokens[static_cast<size_t>(first) + i].to(at::kLong));
    Source source;
    source.ids = collate(rows)["ids"];
    if (!reader.repeats) source.ids = without_repeats(source.ids);
    source.modality = Modality::speech;
    how.longest = kLeastLetters + kLettersPerToken * source.ids.size(1);
    RowDraws draws(0, "reading", source.ids.size(0));
    const at::Tensor heard = source.ids;
    source.ids = heard.to(device_of(*reader.model));
    Generated made = generate(reader.model, source, Modality::text, how, draws);
    made = {made.tokens.to(at::kCPU), made.score.to(at::kCPU)};
    for (const TranslatedPair& pair : translated_pairs(*reader.model, heard, made))
      texts.push_back(reader.text->text(std::vector<int64_t>(
          pair.text.data_ptr<int64_t>(), pair.text.data_ptr<int64_t>() + pair.text.numel())));
  }
  return texts;
}

}  // namespace melete::spear_tts
