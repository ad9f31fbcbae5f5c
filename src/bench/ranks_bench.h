// How fast several processes train together: the real trainer on batches of noise.
#pragma once

#include <string>

#include "bench/soundstream_bench.h"

namespace melete {

class Group;

// Median seconds of a step in which all ranks together train on batch_size items; the same on every rank.
double ranks_step_seconds(Group& group, const SoundStreamBenchConfig& config, const std::string& precision,
                          int repeats);

}  // namespace melete
