#include "systems/musiclm/system.h"

namespace melete {

System musiclm_system() {
  System system{"musiclm", "sound and words in one space, and music from a sentence"};
  system.trains = {
      {kMulanTask, "MuLaN: a joint embedding of sound and words", make_mulan_recipe, make_mulan_exporter}};
  const std::pair<const char*, const char*> stages[] = {{"semantic", "MusicLM's first stage: what is played"},
                                                        {"coarse", "MusicLM's second stage: how it sounds"},
                                                        {"fine", "MusicLM's third stage: the details"}};
  for (const auto& [name, about] : stages) {
    const std::string stage = name;
    system.trains.push_back(
        {music_stage_task(stage), about, [stage] { return make_music_stage_recipe(stage); }, {}});
  }
  system.generates = {
      {"musiclm", "music from a sentence, or in the manner of a recording", make_musiclm_generation}};
  system.imports = {{"musiclm-pytorch", kMulanTask, "audio_to_latents.weight", import_mulan}};
  system.timings = {{kMulanTask, "a training step and embedding of a joint embedding", make_mulan_benchmark}};
  system.joint_embeddings = {{kMulanTask, open_mulan}};
  return system;
}

}  // namespace melete
