#include "systems/spear_tts/system.h"

namespace melete {

System spear_tts_system() {
  System system{"spear-tts", "text to speech through semantic tokens, learned from little text"};
  system.trains = {
      {kPretrainTask,
       "SPEAR-TTS's first stage: speech with tokens deleted, made whole",
       make_spear_pretrain_recipe,
       {}},
      {kBackTranslateTask, "its second: speech read as text", make_spear_back_translate_recipe, {}},
      {kTextToSemanticTask, "its third: text to semantic tokens", make_spear_text_to_semantic_recipe, {}},
  };
  system.generates = {{"spear-tts", "speech, or its semantic tokens, from text", make_spear_tts_generation}};
  return system;
}

}  // namespace melete
