#include "systems/spear_tts/back_translation.h"

#include "core/base/error.h"

namespace melete::spear_tts {

namespace {

at::Tensor plain_tokens(const VocabularyImpl& vocabulary, const at::Tensor& ids) {
  const at::Tensor other = vocabulary.is_padding(ids).logical_or_(ids.eq(vocabulary.end_id()));
  return ids.masked_select(other.logical_not_());
}

}  // namespace

std::vector<TranslatedPair> translated_pairs(TextToSemanticImpl& model, const at::Tensor& speech,
                                             const Generated& texts) {
  std::vector<TranslatedPair> pairs;
  for (int64_t row = 0; row < speech.size(0); ++row)
    pairs.push_back({plain_tokens(*model.speech, speech[row]), plain_tokens(*model.text, texts.tokens[row]),
                     texts.score[row].item<double>()});
  return pairs;
}

at::Tensor pair_row(const at::Tensor& speech, const at::Tensor& text, int64_t delimiter) {
  return at::cat({speech, at::full({1}, delimiter, speech.options()), text});
}

std::pair<at::Tensor, at::Tensor> split_pair_row(const at::Tensor& row, int64_t delimiter) {
  require(row.dim() == 1 && row.scalar_type() == at::kLong,
          "[spear-tts] expected a row of int64 ids, got {} dimensions", row.dim());
  const at::Tensor found = row.eq(delimiter).nonzero();
  require(found.size(0) > 0, "[spear-tts] a generated pair has no delimiter {} between speech and text",
          delimiter);
  const int64_t place = found[0][0].item<int64_t>();
  return {row.narrow(0, 0, place), row.narrow(0, place + 1, row.size(0) - place - 1)};
}

}  // namespace melete::spear_tts
