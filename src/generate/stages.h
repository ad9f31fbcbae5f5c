// Tokens out of AudioLM's three stages, one after another.
#pragma once

#include <ATen/ATen.h>

#include <functional>

#include "generate/sampling.h"
#include "models/coarse_transformer.h"
#include "models/fine_transformer.h"
#include "models/semantic_transformer.h"

namespace melete {

// What the three have in common.
struct StageRequest {
  SamplingConfig sampling;
  Condition condition;
  Draws* draws = nullptr;
  bool unique_consecutive = true;  // runs of one semantic token count once, as in training
  bool may_end = true;  // false: as long as asked for, for models that know only pieces of recordings
  bool use_cache = true;
  // audiolm-pytorch's way where it differs: prompts of unequal length read their logits at padding, padding
  // of the semantic part is looked at, and the last fine code is taken for an end.
  bool as_audiolm_pytorch = false;
  std::function<void(int64_t done, int64_t of)> progress;  // tokens of a row
};

// prompt [batch, n], -1 is padding (n may be 0) -> [batch, at most max_length], -1 from the end on
at::Tensor generate_semantic(SemanticTransformer& model, const at::Tensor& prompt, int64_t max_length,
                             const StageRequest& request);

// semantic [batch, s], prompt [batch, frames, quantizers] or undefined
// -> [batch, prompt frames + at most new_frames, quantizers], -1 from the end on
at::Tensor generate_coarse(CoarseTransformer& model, const at::Tensor& semantic, const at::Tensor& prompt,
                           int64_t new_frames, const StageRequest& request);

// coarse [batch, frames, coarse quantizers], -1 is padding; prompt [batch, at most frames, fine quantizers]
// or undefined -> [batch, frames, fine quantizers], -1 where coarse is padding
at::Tensor generate_fine(FineTransformer& model, const at::Tensor& coarse, const at::Tensor& prompt,
                         const StageRequest& request);

}  // namespace melete
