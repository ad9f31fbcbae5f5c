// What a SoundStream training step costs, whole and by part, and how fast the codec runs.
#pragma once

#include <string>

#include "bench/bench.h"
#include "config/schema.h"
#include "tasks/soundstream_task.h"

namespace melete {

struct SoundStreamBenchConfig {
  SoundStreamTaskConfig task;  // defaults: the size that docs/performance.md compares with audiolm-pytorch
  int64_t batch_size = 4;
  double seconds = 1;         // of a segment
  double codec_seconds = 10;  // of the recording that encode and decode are timed on
  bool parts = true;
};
void describe(Schema& schema, SoundStreamBenchConfig& config);

void bench_soundstream(Bench& bench, SoundStreamBenchConfig config, const std::string& precision);

}  // namespace melete
