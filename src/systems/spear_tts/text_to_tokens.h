// Texts to semantic tokens by any of the ways there are: drawn, searched for, or drafted and judged; and
// back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "systems/spear_tts/beam_search.h"
#include "systems/spear_tts/load.h"
#include "systems/spear_tts/speculative.h"

namespace melete::spear_tts {

struct TextToTokensConfig {
  GenerateConfig how;
  int64_t beam = 0;          // search along so many sequences; 0: draw
  bool speculative = false;  // draft with the early exit
  SpeculationConfig speculation;
  int64_t batch = 16;  // texts at once: every row ends for itself
};
void describe(Schema& schema, TextToTokensConfig& config);

struct TextToTokensReport {
  int64_t tokens = 0;
  double seconds = 0;
  SpeculationReport speculation;
};

// One row of semantic tokens a text, int64 [n] without the end. What a row gets depends on the seed and its
// place among all texts, not on the batch.
std::vector<at::Tensor> text_to_tokens(Reader& reader, const std::vector<std::string>& texts,
                                       const TextToTokensConfig& config, uint64_t seed,
                                       TextToTokensReport* report = nullptr,
                                       const std::function<void(int64_t done, int64_t of)>& progress = {});

// What a model of speech to text makes of semantic tokens, int64 [n] a row, greedily.
std::vector<std::string> tokens_to_text(Reader& reader, const std::vector<at::Tensor>& tokens,
                                        int64_t batch = 16);

}  // namespace melete::spear_tts
