#include "systems/voicebox/system.h"

namespace melete {

System voicebox_system() {
  System system{"voicebox", "speech by flow matching: what is said, in another voice"};
  system.trains = {{"voicebox", "speech by flow matching", make_voicebox_recipe, make_voicebox_exporter},
                   {"aligner", "when each phoneme of a recording is said", make_aligner_recipe, {}},
                   {"duration", "how long phonemes last", make_duration_recipe, {}}};
  system.imports = {{"voicebox-pytorch", "voicebox", "voicebox.to_embed.weight", import_voicebox},
                    {"voicebox-pytorch", "voicebox", "to_embed.weight", import_voicebox}};
  system.timings = {{"voicebox", "a step, sampling and the vocoder", make_voicebox_benchmark}};
  system.generates = {
      {"voicebox", "speech in a given voice, from speech or from text", make_voicebox_generation}};
  return system;
}

}  // namespace melete
