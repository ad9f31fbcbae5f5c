#include "systems/spear_tts/system.h"

#include "systems/spear_tts/foreign_files.h"

namespace melete {

System spear_tts_system() {
  System system{"spear-tts", "text to speech through semantic tokens, learned from little text"};
  system.trains = {
      {kPretrainTask, "SPEAR-TTS's first stage: speech with tokens deleted, made whole",
       make_spear_pretrain_recipe, make_spear_tts_exporter},
      {kBackTranslateTask, "its second: speech read as text", make_spear_back_translate_recipe,
       make_spear_tts_exporter},
      {kTextToSemanticTask, "its third: text to semantic tokens", make_spear_text_to_semantic_recipe,
       make_spear_tts_exporter},
  };
  system.generates = {{"spear-tts", "speech, or its semantic tokens, from text", make_spear_tts_generation}};
  system.imports = {
      {"spear-tts-pytorch", kTextToSemanticTask, "semantic_token_emb.weight", import_spear_tts}};
  system.timings = {
      {"spear-tts", "a training step, and tokens a second of its generation", make_spear_tts_benchmark}};
  return system;
}

}  // namespace melete
