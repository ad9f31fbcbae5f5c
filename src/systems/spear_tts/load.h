// From a run to a model that turns text into semantic tokens, or speech into text.
#pragma once

#include <memory>
#include <string>

#include "data/text_tokenizer.h"
#include "run/load_weights.h"
#include "systems/spear_tts/text_to_semantic.h"

namespace melete::spear_tts {

struct Reader {
  TextToSemantic model{nullptr};  // in eval mode
  std::shared_ptr<const TextTokenizer> text;
  std::string semantic_identity, semantic_from;  // whose tokens it makes, and where that tokenizer was
  bool repeats = false;                          // whether its tokens tell how long everything takes
};
// Of the last training; or of another one of the three, by its task.
Reader open_reader(const std::string& run_or_checkpoint, Weights weights, at::Device device = at::kCPU);
Reader open_reader(const std::string& run_or_checkpoint, Weights weights, const std::string& task,
                   at::Device device = at::kCPU);
Reader open_reader_of_any(const std::string& run_or_checkpoint, Weights weights);

}  // namespace melete::spear_tts
