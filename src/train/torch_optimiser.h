// An optimiser's state as torch.optim.Adam, AdamW or lion_pytorch.Lion would save it.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/checkpoint.h"

namespace melete {

struct TorchOptimiser {
  std::string phase = {};                // of ours: moments are at "optimiser.<phase>.<name>.first" and so on
  std::vector<std::string> order = {};   // our names of the parameters, as the Python module lists them
  nlohmann::ordered_json settings = {};  // of that phase's OptimiserConfig
  std::string place = "optim";           // where it stands in the package: names its tensors
  std::string path = {};                 // of the checkpoint, for messages
  std::map<std::string, std::vector<int64_t>> shapes =
      {};  // theirs, by our name, where they differ from ours
};

// A tree as in io/base/pickle_json.h; `reference` names a tensor in it. With weight decay there are two
// groups, matrices first, as the Python trainers make them. An Error where the checkpoint has no optimiser.
using ReferTo = std::function<nlohmann::ordered_json(const std::string& name, const at::Tensor& tensor)>;
nlohmann::ordered_json torch_optimiser_state(const Checkpoint& checkpoint, TorchOptimiser optimiser,
                                             const ReferTo& reference);

}  // namespace melete
