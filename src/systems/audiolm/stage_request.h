// What is asked of one stage: how to sample, under which condition, and how to run it.
#pragma once

#include <functional>
#include <optional>

#include "generate/sampling.h"
#include "kernels/weight_storage.h"
#include "systems/audiolm/stage.h"

namespace melete {

struct StageRequest {
  SamplingConfig sampling;
  Condition condition;
  Draws* draws = nullptr;
  bool unique_consecutive = true;   // runs of one semantic token count once, as in training
  int64_t frames_between_ends = 1;  // an end stands only after a multiple of these: the groups of a codec
  bool may_end = true;  // false: as long as asked for, for models that know only pieces of recordings
  bool use_cache =
      true;  // false: the whole past is read again for every token, to show that it changes nothing
  // In which the weights are kept that a token reads, where a few rows are made token by token.
  WeightStorage weights = WeightStorage::float32;
  // audiolm-pytorch's way where it differs: prompts of unequal length read their logits at padding, padding
  // of the semantic part is looked at, and the last fine code is taken for an end.
  bool as_audiolm_pytorch = false;
  std::optional<int64_t> ignored;  // its pad_id of 0 or more, which its semantic stage tells lengths by
  std::function<void(int64_t done, int64_t of)> progress;  // tokens of a row
};

}  // namespace melete
