// Short captioned pieces of music, made from nothing: a function of (seed, index). The demo and many tests
// use them as their recordings, so they are varied enough that a codec has something to learn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/manifest.h"

namespace melete {

struct SynthOptions {
  std::string folder;
  int64_t count = 100;
  uint64_t seed = 0;
  int rate_hz = 24000;
  double seconds = 0;           // 0: music 4 s, speech one sentence
  std::string format = "flac";  // or "wav"
  std::string voice;            // speech: who says everything; empty: many voices
  std::string timings;          // speech: file for the times of its phonemes; empty: none
  // speech: one reader in one session, everything at this pace and at one level; 0: each in its own way
  int64_t words_per_minute = 0;
  std::string texts;  // speech: file of what is said, a line each; empty: sentences made up
};

struct MusicPiece {
  std::vector<float> samples;  // mono
  int rate_hz = 0;
  std::string caption;  // says what is heard: instruments, scale, tempo, dynamics, room
};

MusicPiece synth_music_piece(uint64_t seed, int64_t index, int rate_hz = 24000, double seconds = 4.0);

// Writes music_000000.flac and music_000000.txt, and so on.
void synth_music(const SynthOptions& options, const ProgressCallback& progress = {});

}  // namespace melete
