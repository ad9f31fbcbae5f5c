// What a training step of any recipe costs: the real trainer on a batch of noise, in one process or in
// several.
#pragma once

#include <memory>
#include <string>

#include "measure/bench.h"
#include "train/recipe.h"

namespace melete {

class Group;

std::unique_ptr<Benchmark> make_recipe_benchmark(std::unique_ptr<Recipe> recipe);

// Median seconds of a step in which all ranks together train on batch_size items; the same on every rank.
double ranks_step_seconds(Group& group, Recipe& recipe, const std::string& precision, int repeats);

}  // namespace melete
