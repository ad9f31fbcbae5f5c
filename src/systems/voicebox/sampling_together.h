// Several sentences of any lengths through the flow as one batch, each as it would be alone.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "systems/voicebox/sampling.h"

namespace melete::voicebox {

// Item numbers in batches of up to `size`, each of items whose lengths are neighbours; batches in the order
// of their first items, so that a size of 1 leaves the order as it is.
std::vector<std::vector<int64_t>> batches_of_like_length(const std::vector<int64_t>& lengths, int64_t size);

// Conditions of one row each, with a mask and a token for every frame, as one that is padded to the longest.
Condition joined_rows(const std::vector<Condition>& rows);

struct SampledRows {
  std::vector<at::Tensor> frames;  // [1, frames of that row, frame_dim]
  OdeWork work;                    // of the solver, all rows at once
};
// draws_of: the draws of row i, as sample() takes them; a row's noise does not depend on the others.
// A solver that chooses its own steps would see the padding: more than one row is refused.
SampledRows sample_together(Voicebox& model, const std::vector<Condition>& rows, const FlowSampling& how,
                            const std::function<std::unique_ptr<Draws>(size_t)>& draws_of);

}  // namespace melete::voicebox
