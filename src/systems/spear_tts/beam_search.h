// The likeliest tokens for a source, looked for along several sequences at once.
#pragma once

#include "generate/beams.h"
#include "systems/spear_tts/generate.h"

namespace melete::spear_tts {

struct BeamSearchConfig {
  BeamConfig beam;
  double temperature = 1;          // of the log probabilities that are added up
  double guidance = 1;             // see SamplingConfig
  int64_t longest = 2048;          // tokens, the end included
  std::string precision = "fp32";  // see GenerateConfig
};
void describe(Schema& schema, BeamSearchConfig& config);

// Sources are searched together, each until its own search is over. Their cross attention is made once a
// source, not once a beam.
Generated beam_search(TextToSemantic& model, const Source& source, Modality target,
                      const BeamSearchConfig& config);

}  // namespace melete::spear_tts
