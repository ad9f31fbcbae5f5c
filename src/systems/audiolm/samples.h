// What a stage makes so far, for people: coarse and fine models decode what they make of held-out tokens;
// the semantic model's continuation is written as numbers.
#pragma once

#include <memory>

#include "roles/tokenizers.h"
#include "systems/audiolm/task.h"

namespace melete {

// unique_consecutive: as it is trained, see StageRequest
std::unique_ptr<StageSampler> make_sampler(SemanticTransformer model, uint64_t seed, bool unique_consecutive);
std::unique_ptr<StageSampler> make_sampler(CoarseTransformer model, std::shared_ptr<const Codec> codec,
                                           uint64_t seed, bool unique_consecutive);
std::unique_ptr<StageSampler> make_sampler(FineTransformer model, std::shared_ptr<const Codec> codec,
                                           uint64_t seed);

}  // namespace melete
