// One file holds all that a run needs to go on: tensors in namespaced keys (model.*, ema.*,
// optimiser.<phase>.*) and a JSON text (step, task, config, version, ...), under one checksum.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "io/tensors.h"

namespace melete {

struct Checkpoint {
  TensorMap tensors;
  nlohmann::ordered_json meta;  // "step" (integer) is required; the rest belongs to the caller

  int64_t step() const;
  // The tensors whose key starts with `prefix` ("model."), with the prefix removed.
  TensorMap part(const std::string& prefix) const;
  void add(const std::string& prefix, const TensorMap& part);
};

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// Refuses, naming the file and the reason: truncated, changed (checksum), oversized header, not a checkpoint,
// newer.
Checkpoint load_checkpoint(const std::string& path);

// Whether a safetensors file is one of ours; a file that is no safetensors at all is an Error.
bool is_checkpoint(const std::string& path);

// The JSON alone, from the header: fast, and without the check of the tensors' bytes.
nlohmann::ordered_json read_checkpoint_meta(const std::string& path);

}  // namespace melete
