// libespeak-ng, opened while the program runs, so that nothing has to be installed to build or start it.
#pragma once

#include <mutex>
#include <string>

#include "data/base/espeak.h"

namespace melete {

class EspeakLibrary {
 public:
  // The one of this process; nullptr where it is not installed. It has global state, so calls take turns.
  static EspeakLibrary* find();

  std::string phonemes(const std::string& text, const std::string& voice);  // "ð_ə ɹ_ˈɪ_v_ɚ"
  EspeakSpeech speak(const std::string& text, const EspeakVoice& voice);

 private:
  explicit EspeakLibrary(void* handle);
  template <class Function>
  void load(Function*& function, const char* name);
  void choose_voice(const std::string& voice);

  struct Event;
  struct Voice;
  static int on_sound(short* samples, int count, Event* events);
  static EspeakSpeech* speaking_;  // where on_sound writes: what is being spoken

  void* handle_;
  std::mutex mutex_;
  int rate_hz_ = 0;

  int (*initialize_)(int output, int buffer_ms, const char* path, int options) = nullptr;
  int (*set_voice_)(const char* name) = nullptr;
  int (*set_voice_by_)(Voice* voice) = nullptr;
  int (*set_parameter_)(int parameter, int value, int relative) = nullptr;
  void (*set_callback_)(int (*callback)(short*, int, Event*)) = nullptr;
  int (*synthesize_)(const void* text, size_t size, unsigned position, int position_type, unsigned end,
                     unsigned flags, unsigned* identifier, void* user_data) = nullptr;
  const char* (*to_phonemes_)(const void** text, int text_mode, int phoneme_mode) = nullptr;
};

}  // namespace melete
