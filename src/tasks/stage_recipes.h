// Recipes of AudioLM's three stages.
#pragma once

#include <memory>

#include "tasks/recipe.h"

namespace melete {

std::unique_ptr<Recipe> make_semantic_recipe();
std::unique_ptr<Recipe> make_coarse_recipe();
std::unique_ptr<Recipe> make_fine_recipe();

}  // namespace melete
