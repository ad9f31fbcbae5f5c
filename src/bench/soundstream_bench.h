// What a SoundStream training step costs, whole and by part, and how fast the codec runs.
#pragma once

#include <string>

#include "bench/bench.h"
#include "config/schema.h"
#include "data/dataset.h"
#include "tasks/soundstream_task.h"
#include "train/trainer_config.h"

namespace melete {

struct SoundStreamBenchConfig {
  SoundStreamTaskConfig task;  // defaults: the size that docs/performance.md compares with audiolm-pytorch
  int64_t batch_size = 4;
  double seconds = 0;         // of a segment; 0: as the recipe says, or 1
  double codec_seconds = 10;  // of the recording that encode and decode are timed on
  bool parts = true;
  // What else a recipe for training says, so that it can be given here: only the segment's length counts.
  DataConfig data;
  TrainerConfig train;

  double segment_seconds() const;
};
void describe(Schema& schema, SoundStreamBenchConfig& config);

void bench_soundstream(Bench& bench, SoundStreamBenchConfig config, const std::string& precision);

}  // namespace melete
