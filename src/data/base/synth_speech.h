// Spoken sentences with their text, through the espeak-ng program: many voices, speeds and pitches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/synth_music.h"

namespace melete {

struct Utterance {
  std::string text;
  std::string voice;  // espeak-ng's name for accent and speaker: "en-us+f3"
  int words_per_minute = 175;
  int pitch = 50;  // 0 .. 99
};

// Who speaks, and what about.
struct SpeechStyle {
  int64_t voices = 0;  // so many, each with its own pitch, at about one speed; 0: all there are, at any
  bool short_sentences = false;  // "the old sailor found the river": 40 words, four to six at a time
};

bool espeak_installed();

// What is said and how, as a function of (seed, index); `seconds` asks for about that much speech (0: one
// sentence).
Utterance make_utterance(uint64_t seed, int64_t index, double seconds = 0, const SpeechStyle& style = {});

// Mono samples; an Error naming the package when espeak-ng is not installed.
std::vector<float> speak(const Utterance& utterance, int rate_hz = 24000);

// Writes speech_000000.flac and speech_000000.txt, and so on.
void synth_speech(const SynthOptions& options, const ProgressCallback& progress = {},
                  const SpeechStyle& style = {});

}  // namespace melete
