// What AudioLM's stages are trained on: cross entropy over the tokens of a batch.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "systems/audiolm/coarse_transformer.h"
#include "systems/audiolm/fine_transformer.h"
#include "systems/audiolm/semantic_transformer.h"

namespace melete {

struct StageLossConfig {
  bool unique_consecutive = true;  // runs of one semantic token count once
  double forget = 0.15;            // share of positions that training hides from attention
  double first_part_weight = 1;    // of the loss on the semantic (coarse stage) or coarse (fine stage) part
};
void describe(Schema& schema, StageLossConfig& config);

struct StageInput {
  at::Tensor semantic;  // int64 [batch, n], -1 is padding
  at::Tensor acoustic;  // int64 [batch, frames, quantizers] of the codec, -1 is padding
  at::Tensor fine;      // of the fine stage: its codes where they are not in `acoustic`, which is coarse then
  Condition condition;
  bool end = true;                       // sequences are whole: their end is learned, too
  bool forget = true;                    // hide positions and drop conditions, as training does
  std::optional<double> condition_drop;  // instead of the model's own in training and none otherwise
  bool keep_padding = false;             // see tidy_tokens; padding counts in the weights of the parts, too
  // Labels of this id do not count, though the model sees it: audiolm-pytorch with a pad_id of 0 or more.
  std::optional<int64_t> ignored;
  Draws* draws = nullptr;
};

struct StageLosses {
  at::Tensor total;
  std::vector<std::pair<std::string, at::Tensor>> named;  // detached scalars: losses and accuracies
  at::Tensor chance;                // the total of someone who thinks all tokens equally likely
  at::Tensor first_logits, logits;  // of the first part (undefined where there is none) and the second
};

StageLosses semantic_losses(SemanticTransformer& model, const StageInput& input,
                            const StageLossConfig& config);
StageLosses coarse_losses(CoarseTransformer& model, const StageInput& input, const StageLossConfig& config);
StageLosses fine_losses(FineTransformer& model, const StageInput& input, const StageLossConfig& config);

// Rows without padding and, when asked, with `end` appended (-1: none) and runs of one token made one;
// padded with -1 to the longest. keep_padding treats padding like any token, as audiolm-pytorch does.
at::Tensor tidy_tokens(const at::Tensor& ids, int64_t end, bool unique_consecutive,
                       bool keep_padding = false);

// True where attention may look: int(share * length) positions of each row are hidden, never the first.
at::Tensor forgetful_mask(int64_t rows, int64_t length, double share, Draws& draws);

}  // namespace melete
