// The one list: a new system is its room and a line here.
#include <fmt/ranges.h>

#include "config/nearest.h"
#include "core/base/error.h"
#include "systems/audiolm/system.h"
#include "systems/muse/system.h"
#include "systems/musiclm/system.h"
#include "systems/soundstream/system.h"
#include "systems/spear_tts/system.h"
#include "systems/system.h"
#include "systems/vocos/system.h"
#include "systems/voicebox/system.h"

namespace melete {

namespace {

std::vector<System>& all() {
  static std::vector<System> list = {
      soundstream_system(), audiolm_system(), vocos_system(), voicebox_system(),
      spear_tts_system(),   musiclm_system(), muse_system(),
  };
  return list;
}

}  // namespace

const std::vector<System>& systems() {
  return all();
}

void add_system(System system) {
  all().push_back(std::move(system));
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const System& system : systems())
    for (const Trainable& trainable : system.trains) names.push_back(trainable.name);
  return names;
}

const Trainable& find_trainable(const std::string& name) {
  for (const System& system : systems())
    for (const Trainable& trainable : system.trains)
      if (trainable.name == name) return trainable;
  throw UsageError(fmt::format("nothing to train is called `{}`; did you mean `{}`? there is: {}", name,
                               nearest_word(name, recipe_names()), fmt::join(recipe_names(), ", ")));
}

std::unique_ptr<Recipe> make_recipe(const std::string& name) {
  return find_trainable(name).recipe();
}

}  // namespace melete
