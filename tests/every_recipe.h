// For tests that hold for every recipe in the list: each one at its small settings, on noise.
#pragma once

#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "measure/noise_batches.h"
#include "systems/system.h"

namespace melete::testing {

// The small settings of a recipe, where it has some: recipes/<room>/<name>_tiny.toml, or the room's
// tiny.toml.
inline std::string tiny_file(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MELETE_SOURCE_DIR "/recipes")) {
    const std::filesystem::path& path = entry.path();
    if (path.stem() == name + "_tiny" || (path.stem() == "tiny" && path.parent_path().filename() == name))
      return path.string();
  }
  return "";
}

struct PreparedRecipe {
  std::unique_ptr<Recipe> recipe;
  std::unique_ptr<Task> task;
  std::unique_ptr<NoiseBatches> batches;
  TrainerConfig config;
};

// The same weights and batch every time.
inline PreparedRecipe prepare(const std::string& name, int64_t items) {
  PreparedRecipe made;
  made.recipe = make_recipe(name);
  Schema schema = made.recipe->schema();
  if (const std::string file = tiny_file(name); !file.empty()) schema.apply_file(file);
  schema.check();
  made.recipe->settle_on_paper();
  torch::manual_seed(1);
  made.task = made.recipe->make_task();
  made.batches = std::make_unique<NoiseBatches>(made.recipe->example(items));
  made.config = made.recipe->train;
  made.config.steps = 1000;
  return made;
}

}  // namespace melete::testing
