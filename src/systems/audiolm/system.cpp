#include "systems/audiolm/system.h"

namespace melete {

System audiolm_system() {
  System system{"audiolm", "audio language model: sound from nothing, from a prompt or from text"};
  system.trains = {
      {"semantic", "AudioLM's first stage: what is played or said", make_semantic_recipe,
       make_stage_exporter},
      {"coarse", "AudioLM's second stage: how it sounds", make_coarse_recipe, make_stage_exporter},
      {"fine", "AudioLM's third stage: the details", make_fine_recipe, make_stage_exporter},
  };
  system.generates = {{"audiolm", "sound from nothing, from a prompt or from text", make_audiolm_generation}};
  // A weight that only this kind of model has.
  const std::pair<const char*, const char*> marks[] = {
      {"semantic", "start_token"}, {"coarse", "semantic_start_token"}, {"fine", "fine_start_token"}};
  for (const auto& [stage, mark] : marks) {
    const std::string name = stage;
    system.imports.push_back({"audiolm-pytorch", name, mark,
                              [name](const PackageSource& source) { return import_stage(source, name); }});
    system.timings.push_back({name, "a training step", [name] { return make_stage_benchmark(name); }});
    system.generates.push_back(
        {name, "tokens of this stage alone", [name] { return make_stage_generation(name); }});
  }
  system.timings.push_back(
      {"generate", "tokens a second of all three stages", [] { return make_stage_benchmark("generate"); }});
  return system;
}

}  // namespace melete
