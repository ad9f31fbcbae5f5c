// Tokens out of AudioLM's three stages, one after another.
#pragma once

#include <ATen/ATen.h>

#include "systems/audiolm/coarse_transformer.h"
#include "systems/audiolm/fine_transformer.h"
#include "systems/audiolm/semantic_transformer.h"
#include "systems/audiolm/stage_request.h"

namespace melete {

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
