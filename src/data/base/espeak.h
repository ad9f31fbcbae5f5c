// espeak-ng, found at run time: phonemes of a text, and speech with the times of its phonemes. The library
// where it is installed (quick, and it knows the times), else the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace melete {

bool espeak_installed();          // the program
bool espeak_library_installed();  // the library

// Phonemes in IPA, in order, stress marks before them, as espeak-ng reads one clause: "ð", "ə", "ˈoʊ", ...
// Words are kept apart by an empty string. An Error names the package where neither library nor program is.
std::vector<std::string> espeak_phonemes(std::string_view clause, const std::string& voice);

struct EspeakSpeech {
  struct Phoneme {
    std::string symbol;  // in IPA without stress; empty: a pause
    double start_seconds = 0;
  };
  std::vector<float> samples;  // mono
  int rate_hz = 0;
  std::vector<Phoneme> phonemes;  // by the library alone
};

struct EspeakVoice {
  std::string name;  // accent and speaker: "en-us+f3"
  int words_per_minute = 175;
  int pitch = 50;  // 0 .. 99
};

// Through the program, without times of phonemes.
EspeakSpeech espeak_speak(const std::string& text, const EspeakVoice& voice);
// Through the library; an Error where it is not installed.
EspeakSpeech espeak_speak_timed(const std::string& text, const EspeakVoice& voice);

}  // namespace melete
