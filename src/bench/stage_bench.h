// What a training step of AudioLM's stages costs, and how many tokens a second they make.
#pragma once

#include <string>

#include "bench/bench.h"
#include "config/schema.h"
#include "models/stage.h"

namespace melete {

// Defaults: the sizes that docs/performance.md compares with audiolm-pytorch.
struct StageBenchConfig {
  StageConfig model;
  int64_t batch_size = 4;
  int64_t semantic_tokens = 500, codebook_size = 1024;
  int64_t coarse_quantizers = 3, fine_quantizers = 5;
  int64_t semantic_length = 256;        // tokens, semantic stage
  int64_t coarse_semantic_length = 64;  // tokens before the codes, coarse stage
  int64_t coarse_frames = 64;           // coarse stage
  int64_t fine_frames = 32;             // fine stage
  int64_t generated_length = 256;       // tokens that generation is timed on
};
void describe(Schema& schema, StageBenchConfig& config);

// what: semantic, coarse, fine (training steps), generate (all three, with cache, batch 1)
void bench_stage(Bench& bench, const std::string& what, const StageBenchConfig& config,
                 const std::string& precision);

}  // namespace melete
