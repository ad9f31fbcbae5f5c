// New tokens from a source: one at a time, each drawn from what the model expects.
#pragma once

#include "generate/sampling.h"
#include "systems/spear_tts/text_to_semantic.h"

namespace melete::spear_tts {

struct GenerateConfig {
  SamplingConfig sampling;
  int64_t longest = 2048;  // tokens, the end included
  // As spear-tts-pytorch does it: top_p is taken before the temperature; and where a row has not ended at the
  // longest, all rows keep what was drawn after their ends.
  bool as_upstream = false;
  std::string precision = "fp32";  // of the weights that single positions read: fp32, bf16, int8

  GenerateConfig();
};
void describe(Schema& schema, GenerateConfig& config);

struct Generated {
  at::Tensor tokens;  // int64 [batch, n]: up to a row's end, which is included; padding after it
  at::Tensor score;   // float32 [batch]: log probability of a row's tokens, as the model expects them
};

// Rows end for themselves; they stop taking time soon after.
Generated generate(TextToSemantic& model, const Source& source, Modality target, const GenerateConfig& config,
                   Draws& draws);

// The next token of each row: logits [rows, classes] -> int64 [rows]; without draws at temperature 0
at::Tensor choose(const at::Tensor& logits, const GenerateConfig& config, Draws& draws);

// Padding after the first end of each row: tokens int64 [batch, n]; as it is where there are no ends (-1).
at::Tensor padded_after_end(const at::Tensor& tokens, int64_t end, int64_t padding);

}  // namespace melete::spear_tts
