#include "data/base/espeak_library.h"

#include <dlfcn.h>

#include <cstring>

#include "core/base/error.h"

namespace melete {

namespace {

// Numbers of espeak-ng's interface (speak_lib.h).
constexpr int kSynchronous = 2;
constexpr int kPhonemeEvents = 1, kEventsInIpa = 2, kDoNotExit = 0x8000;
constexpr int kRate = 1, kPitch = 3;
constexpr unsigned kUtf8 = 1;
constexpr int kIpaSeparated = 0x02 | ('_' << 8);
constexpr int kNoMoreEvents = 0, kPhonemeEvent = 7;

}  // namespace

// As the library has it.
struct EspeakLibrary::Event {
  int type;
  unsigned identifier;
  int text_position, length;
  int audio_ms, sample;
  void* user_data;
  union {
    int number;
    const char* name;
    char symbol[8];  // not ended where it fills all of it
  } id;
};

// Likewise.
struct EspeakLibrary::Voice {
  const char *name, *languages, *identifier;
  unsigned char gender, age, variant, reserved;
  int score;
  void* spare;
};

EspeakSpeech* EspeakLibrary::speaking_ = nullptr;

EspeakLibrary* EspeakLibrary::find() {
  static EspeakLibrary* const library = []() -> EspeakLibrary* {
    void* handle = ::dlopen("libespeak-ng.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle == nullptr ? nullptr : new EspeakLibrary(handle);  // lives as long as the process
  }();
  return library;
}

template <class Function>
void EspeakLibrary::load(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(handle_, name));
  require(function != nullptr, "[espeak] the library libespeak-ng.so.1 has no {}; is it damaged?", name);
}

EspeakLibrary::EspeakLibrary(void* handle) : handle_(handle) {
  load(initialize_, "espeak_Initialize");
  load(set_voice_, "espeak_SetVoiceByName");
  load(set_voice_by_, "espeak_SetVoiceByProperties");
  load(set_parameter_, "espeak_SetParameter");
  load(set_callback_, "espeak_SetSynthCallback");
  load(synthesize_, "espeak_Synth");
  load(to_phonemes_, "espeak_TextToPhonemes");
  rate_hz_ = initialize_(kSynchronous, 0, nullptr, kPhonemeEvents | kEventsInIpa | kDoNotExit);
  require(rate_hz_ > 0, "[espeak] the library finds no data; try: sudo apt-get install espeak-ng-data");
  set_callback_(&EspeakLibrary::on_sound);
  // Since 1.52 the seed of its noise is the clock's, unless it is told another.
  if (void* seed = ::dlsym(handle_, "espeak_ng_SetRandSeed")) reinterpret_cast<int (*)(long)>(seed)(1);
}

void EspeakLibrary::choose_voice(const std::string& voice) {
  if (set_voice_(voice.c_str()) == 0) return;
  // "en-gb" is a language, which several voices speak.
  Voice wanted{};
  wanted.languages = voice.c_str();
  require(set_voice_by_(&wanted) == 0, "[espeak] it has no voice called {}; `espeak-ng --voices` lists them",
          voice);
}

std::string EspeakLibrary::phonemes(const std::string& text, const std::string& voice) {
  const std::lock_guard lock(mutex_);
  choose_voice(voice);
  std::string all;
  const void* rest = text.c_str();
  while (rest != nullptr) {  // it reads clause by clause, and says where the next one begins
    all += to_phonemes_(&rest, static_cast<int>(kUtf8), kIpaSeparated);
    all += '\n';
  }
  return all;
}

int EspeakLibrary::on_sound(short* samples, int count, Event* events) {
  EspeakSpeech& speech = *speaking_;
  for (; events->type != kNoMoreEvents; ++events) {
    if (events->type != kPhonemeEvent) continue;
    const std::string symbol(events->id.symbol, ::strnlen(events->id.symbol, sizeof events->id.symbol));
    speech.phonemes.push_back({symbol, static_cast<double>(events->sample) / speech.rate_hz});
  }
  if (samples != nullptr)
    for (int i = 0; i < count; ++i) speech.samples.push_back(static_cast<float>(samples[i]) / 32768.0f);
  return 0;
}

EspeakSpeech EspeakLibrary::speak(const std::string& text, const EspeakVoice& voice) {
  const std::lock_guard lock(mutex_);
  choose_voice(voice.name);
  set_parameter_(kRate, voice.words_per_minute, 0);
  set_parameter_(kPitch, voice.pitch, 0);
  EspeakSpeech speech;
  speech.rate_hz = rate_hz_;
  speaking_ = &speech;
  const int code = synthesize_(text.c_str(), text.size() + 1, 0, 1, 0, kUtf8, nullptr, nullptr);
  speaking_ = nullptr;
  require(code == 0 && !speech.samples.empty(), "[espeak] it gave no sound for \"{}\" (code {})", text, code);
  return speech;
}

}  // namespace melete
