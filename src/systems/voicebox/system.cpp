#include "systems/voicebox/system.h"

namespace melete {

System voicebox_system() {
  System system{"voicebox", "speech by flow matching: what is said, in another voice"};
  system.trains = {{"voicebox", "speech by flow matching", make_voicebox_recipe, {}}};
  system.generates = {
      {"voicebox", "speech in a given voice, from speech or from text", make_voicebox_generation}};
  return system;
}

}  // namespace melete
