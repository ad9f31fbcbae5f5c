// Voicebox: speech by flow matching, told what to say and in whose voice.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System voicebox_system();

std::unique_ptr<Recipe> make_voicebox_recipe();
std::unique_ptr<Generation> make_voicebox_generation();

}  // namespace melete
