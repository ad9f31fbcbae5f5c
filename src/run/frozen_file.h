// Frozen models on disk: a checkpoint like any other, at step 0.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/tensors.h"

namespace melete {

// What a file of a frozen model holds.
struct FrozenModel {
  std::string task;               // "semantic-tokenizer", "hubert", "encodec", "t5"
  nlohmann::ordered_json config;  // enough to build the model
  TensorMap tensors;
};

// `about` goes into the description as it is: where the weights came from, how a fit went.
void save_frozen(const std::string& path, const FrozenModel& model, const nlohmann::ordered_json& about = {});

// A file that is no frozen model (a run's checkpoint) is refused with what it is.
FrozenModel load_frozen(const std::string& path);

}  // namespace melete
