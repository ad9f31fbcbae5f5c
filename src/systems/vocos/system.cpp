#include "systems/vocos/system.h"

#include "systems/vocos/load.h"

namespace melete {

System vocos_system() {
  System system{"vocos", "vocoder: mel frames to sound"};
  system.trains = {{"vocos", "a vocoder: mel frames to sound", make_vocos_recipe, {}}};
  system.audio_features = {{"vocos", load_vocos}, {"encodec-vocos", load_encodec_vocos}};
  return system;
}

}  // namespace melete
