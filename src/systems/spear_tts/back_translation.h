// Pairs for the last training, made from speech alone: beside it, a text that the model reads in it.
#pragma once

#include <utility>
#include <vector>

#include "systems/spear_tts/generate.h"

namespace melete::spear_tts {

struct TranslatedPair {
  at::Tensor speech, text;  // int64 [n], without padding and ends
  double score = 0;         // log probability of the text
};
// speech int64 [batch, n], padded; texts as generate() or beam_search() made them for it
std::vector<TranslatedPair> translated_pairs(TextToSemanticImpl& model, const at::Tensor& speech,
                                             const Generated& texts);

// One row of spear-tts-pytorch's folders of generated pairs: semantic ids, a delimiter, ids of text. (Its own
// rows have an end in both halves, and in the first what padded the batch; the training that reads them adds
// a second end.)
at::Tensor pair_row(const at::Tensor& speech, const at::Tensor& text, int64_t delimiter);
std::pair<at::Tensor, at::Tensor> split_pair_row(const at::Tensor& row, int64_t delimiter);

}  // namespace melete::spear_tts
