// What training a recipe on many accelerators asks of network, memory, data reader and disk: arithmetic on
// the model's own sizes, on paper.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/recipe.h"

namespace melete {

struct PlanAssumptions {
  std::vector<int64_t> accelerators = {8, 64, 1024};
  double step_seconds = 0.25;      // of one accelerator for its micro-batches, without any waiting
  double backward_share = 0.6;     // of a step: what the reduction can hide behind
  double disk_mb_a_second = 1000;  // of the main rank, for checkpoints
};

struct PlanSizes {
  std::string name;
  std::string assumed;          // what was taken for granted about models that were not given
  int64_t parameters = 0;       // trainable, of all phases
  int64_t gradient_bytes = 0;   // reduced once a step
  int64_t codebook_bytes = 0;   // statistics reduced in every forward pass
  int64_t collectives = 0;      // of a step: buckets, codebooks, values
  int64_t optimiser_bytes = 0;  // both moments
  int64_t average_bytes = 0;    // moving average of the weights
  int64_t model_bytes = 0;      // weights and buffers
  int64_t checkpoint_bytes = 0;
  int64_t save_every = 0;
  int64_t items_a_step = 0;     // of one rank
  double seconds_of_audio = 0;  // of one item
  double item_bytes = 0;        // of one item, read from disk
};

struct PlanRow {
  int64_t accelerators = 0;
  double sent_bytes = 0;            // by each rank in a step: a ring's 2 (N - 1) / N of what is reduced
  double hidden_gbit_a_second = 0;  // that each link needs so that the reduction hides behind backward
  double visible_at_10_gbit = 0;    // share of the step lost where a rank has 10 Gbit/s
  double audio_a_second = 0;        // seconds of sound read in a second by all
  double read_mb_a_second = 0;
  double memory_bytes = 0,
         sharded_memory_bytes = 0;  // a rank's weights, gradients, buckets, moments, average
};

PlanSizes sizes_of(Recipe& recipe);  // builds the model; needs neither data nor frozen models
PlanSizes sizes_of(const Recipe& recipe, Task& task);  // of a model that is there already
std::vector<PlanRow> plan(const PlanSizes& sizes, const PlanAssumptions& assumptions);

}  // namespace melete
