// Semantic tokens by speculative decoding: the decoder's early layers and their exit draft, the late layers
// judge. The early layers' keys and values are those of the whole decoder, so judging runs late layers only.
#pragma once

#include "systems/spear_tts/generate.h"

namespace melete::spear_tts {

struct SpeculationConfig {
  int64_t drafts = 5;   // tokens that are drafted at a time
  double lenience = 1;  // below 1: accepts more than is exact
};
void describe(Schema& schema, SpeculationConfig& config);

struct SpeculationReport {
  int64_t drafted = 0, accepted = 0;  // tokens of rows that had not ended
  int64_t rounds = 0;                 // passes through the late layers

  double acceptance() const {
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
  }
};

// What generate() gives: at temperature 0 the same tokens, else tokens of the same distribution.
Generated generate_speculatively(TextToSemantic& model, const Source& source, const GenerateConfig& config,
                                 const SpeculationConfig& speculation, Draws& draws,
                                 SpeculationReport* report = nullptr);

}  // namespace melete::spear_tts
