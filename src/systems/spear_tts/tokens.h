// Columns of a batch as SPEAR-TTS takes them.
#pragma once

#include <memory>

#include "data/batch.h"
#include "data/text_tokenizer.h"

namespace melete::spear_tts {

struct SpearColumns {
  std::shared_ptr<const TextTokenizer> text;
  bool repeats = false;    // false: a run of one semantic token counts once
  bool with_text = false;  // adds "text" int64 [items, n], padded with -1, from the words of that name

  void add(Batch& batch) const;
};

// A run of one token counts once: ids int64 [batch, n], padded with -1 -> the same, shorter
at::Tensor without_repeats(const at::Tensor& ids);

}  // namespace melete::spear_tts
