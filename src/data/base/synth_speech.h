// Spoken sentences with their text, through the espeak-ng program: many voices, speeds and pitches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/espeak.h"
#include "data/base/synth_music.h"
#include "data/base/timings.h"

namespace melete {

struct Utterance {
  std::string text;
  EspeakVoice voice;
  bool one_level = false;  // as loud as all others; else as speakers of a corpus differ
};

// Who speaks, and what about.
struct SpeechStyle {
  int64_t voices = 0;  // so many, each with its own pitch, at about one speed; 0: all there are, at any
  bool short_sentences = false;  // "the old sailor found the river": 40 words, four to six at a time
  bool varied = false;           // several hundred words and all sounds of English (synth_sentences.h)
};

// What is said and how, as a function of (seed, index); `seconds` asks for about that much speech (0: one
// sentence).
Utterance make_utterance(uint64_t seed, int64_t index, double seconds = 0, const SpeechStyle& style = {});

// Mono samples; an Error naming the package when espeak-ng is not installed.
std::vector<float> speak(const Utterance& utterance, int rate_hz = 24000);

// The same with the times of its phonemes, which espeak-ng's library knows.
struct SpokenUtterance {
  std::vector<float> samples;
  SpokenTiming timing;
};
SpokenUtterance speak_timed(const Utterance& utterance, int rate_hz = 24000);

// Writes speech_000000.flac and speech_000000.txt, and so on; and options.timings, where it is named. -> how
// many
int64_t synth_speech(const SynthOptions& options, const ProgressCallback& progress = {},
                     const SpeechStyle& style = {});

}  // namespace melete
