// A network that needs few steps and no second branch: it learns where a trained one, guided and in small
// steps, would be after a large step (as progressive distillation of Salimans and Ho 2022, in one round).
#pragma once

#include <utility>
#include <vector>

#include "systems/voicebox/flow_matching.h"
#include "systems/voicebox/sampling.h"

namespace melete::voicebox {

struct DistillationConfig {
  int64_t steps = 8;          // that the new network is to need
  int64_t teacher_steps = 2;  // of the teacher in each of them
  double guidance = 1.7;      // of the teacher: it becomes part of the new network
};
void describe(Schema& schema, DistillationConfig& config);

// The mean flow over one of `steps` equal stretches of the way, which the teacher is followed through from a
// point of the straight way. Draws, in this order: noise, times, mask_fraction, mask_start, hide_all.
FlowLosses distillation_losses(Voicebox& student, Voicebox& teacher, const FlowBatch& batch,
                               const FlowMatchingConfig& flow, const DistillationConfig& config,
                               Draws& draws);

// How far speech of few steps is from the teacher's own in many guided ones, both from the same noise: mean
// distance of hidden values, whose deviation is 1.
struct DistillationError {
  int64_t steps = 0;
  at::Tensor student, teacher;  // scalars; teacher: guided, in as few steps (twice the work)
};
std::vector<DistillationError> distillation_errors(Voicebox& student, Voicebox& teacher,
                                                   const Condition& condition, double guidance, Draws& draws);

}  // namespace melete::voicebox
