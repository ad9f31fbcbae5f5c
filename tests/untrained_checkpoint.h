// A recipe's first checkpoint, before its first step: small models in files for tests that use them.
#pragma once

#include <torch/utils.h>

#include <string>

#include "every_recipe.h"
#include "run/checkpoint.h"

namespace melete::testing {

// Its tiny recipe, with those settings on top. Made on the CPU.
inline Checkpoint untrained_checkpoint(const std::string& name, const nlohmann::ordered_json& settings) {
  const std::unique_ptr<Recipe> recipe = make_recipe(name);
  Schema schema = recipe->schema();
  if (const std::string file = tiny_file(name); !file.empty()) schema.apply_file(file);
  if (!settings.empty()) schema.apply(settings);
  schema.check();
  recipe->settle();
  torch::manual_seed(1);
  const std::unique_ptr<Task> task = recipe->make_task();
  NoiseBatches batches(recipe->example(2));
  TrainerConfig config = recipe->train;
  config.device = "cpu";
  TrainerParts parts{*task, batches};
  parts.config = schema.json();
  Checkpoint made = Trainer(std::move(parts), config).checkpoint();
  for (auto& [key, tensor] : made.tensors) tensor = tensor.clone();  // the model goes, its memory with it
  return made;
}

}  // namespace melete::testing
