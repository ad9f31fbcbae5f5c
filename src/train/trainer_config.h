// Settings of the training loop that every system shares.
#pragma once

#include <cstdint>
#include <string>

#include "dist/dist_config.h"
#include "train/ema.h"

namespace melete {

class Schema;

struct HealthConfig {
  int64_t max_bad_steps = 20;  // in a row, before the run goes back to its last good checkpoint
  int64_t max_rollbacks = 3;   // before it stops
};

void describe(Schema& schema, HealthConfig& config);

struct TrainerConfig {
  int64_t steps = 100000;
  int64_t accumulate = 1;
  int64_t seed = 0;
  std::string precision = "fp32";  // or bf16, or fp16 on a GPU
  bool tf32 = false;
  std::string device = "auto";
  int64_t log_every = 1;
  std::string columns = "main";   // or all
  int64_t validate_every = 1000;  // 0: never
  int64_t validate_batches = 8;
  int64_t sample_every = 1000;  // 0: never
  int64_t save_every = 1000;    // 0: only at the end
  int64_t keep_last = 3;
  int64_t keep_every = 0;
  EmaConfig ema;
  HealthConfig health;
  DistConfig dist;
};

void describe(Schema& schema, TrainerConfig& config);

}  // namespace melete
