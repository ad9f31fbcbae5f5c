// SPEAR-TTS: text to semantic tokens to speech, learned from much speech and little text.
#pragma once

#include <memory>

#include "systems/system.h"

namespace melete {

System spear_tts_system();

constexpr const char* kPretrainTask = "spear-pretrain";
constexpr const char* kBackTranslateTask = "spear-back-translate";
constexpr const char* kTextToSemanticTask = "spear-text-to-semantic";

std::unique_ptr<Recipe> make_spear_pretrain_recipe();
std::unique_ptr<Recipe> make_spear_back_translate_recipe();
std::unique_ptr<Recipe> make_spear_text_to_semantic_recipe();
std::unique_ptr<Generation> make_spear_tts_generation();
std::unique_ptr<Benchmark> make_spear_tts_benchmark();

}  // namespace melete
