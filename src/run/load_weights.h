// From a run folder or a checkpoint file to the weights of one of its modules.
#pragma once

#include <string>

#include "run/run_folder.h"

namespace torch::nn {
class Module;
}

namespace melete {

enum class Weights {
  best,       // the moving average where there is one
  online,     // as the optimiser left them
  untrained,  // the same architecture before its first step
};

Weights weights_named(const std::string& name);  // "ema": best, "online"
std::string weights_name(Weights weights);       // "ema", "online", "untrained"

// The file itself, or the newest usable checkpoint of a run folder. `where` opens the messages: "codec".
FoundCheckpoint open_checkpoint(const std::string& run_or_checkpoint, const std::string& where);
// One of another task is refused.
FoundCheckpoint open_checkpoint(const std::string& run_or_checkpoint, const std::string& where,
                                const std::string& task);

// Fills every parameter and buffer of a module that stands at `prefix` ("codec.") in the run's model. True
// when any of them came from the moving average.
bool load_weights(torch::nn::Module& module, const std::string& prefix, const FoundCheckpoint& found,
                  Weights weights, const std::string& where);

}  // namespace melete
