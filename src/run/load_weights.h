// From a run folder or a checkpoint file to the weights of one of its modules.
#pragma once

#include <functional>
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

// What load_weights() took, for whoever tells a person. Listeners of one thread stand around each other, and
// all of them hear it.
struct TakenWeights {
  std::string path;  // of the checkpoint
  Weights asked = Weights::best;
  bool averaged = false;
};
class WeightsListener {
 public:
  explicit WeightsListener(std::function<void(const TakenWeights&)> hear);
  ~WeightsListener();
  WeightsListener(const WeightsListener&) = delete;
  WeightsListener& operator=(const WeightsListener&) = delete;

 private:
  friend void tell_weights(const TakenWeights& taken);
  std::function<void(const TakenWeights&)> hear_;
  WeightsListener* outer_;
};
void tell_weights(const TakenWeights& taken);

// Fills every parameter and buffer of a module that stands at `prefix` ("codec.") in the run's model. True
// when any of them came from the moving average.
bool load_weights(torch::nn::Module& module, const std::string& prefix, const FoundCheckpoint& found,
                  Weights weights, const std::string& where);

}  // namespace melete
