// Vocos: mel frames to sound.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System vocos_system();

std::unique_ptr<Recipe> make_vocos_recipe();

}  // namespace melete
