// The averaged weights as those that training goes on from: upstream's set_model_as_ema_model_, for a run
// that ends its search and begins to settle.
#pragma once

#include <string>

#include "run/run_folder.h"

namespace melete {

// Every weight that has an average becomes it. Optimisers, counters and the average itself stay as they are.
Checkpoint ema_as_model(const FoundCheckpoint& found);

// To x.safetensors, or to a new run folder that `train --resume` goes on from. Returns the checkpoint's path.
std::string write_ema_as_model(const FoundCheckpoint& found, const std::string& out);

}  // namespace melete
