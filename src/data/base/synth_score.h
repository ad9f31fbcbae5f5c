// What the built-in synthesizer plays: a score, composed from (seed, index), and the caption that describes
// it. The caption is made from the score alone, so it cannot say what is not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/synth_instruments.h"

namespace melete {

enum class Dynamics { soft, medium, loud, growing, fading };
enum class Room { dry, small_room, hall, cathedral };
enum class Role { melody, chords, arpeggio, bass, rhythm };

struct ScoreNote {
  double begin_beat = 0;
  double beats = 1;
  int semitone = 60;                 // MIDI number; unused by drums
  DrumSound drum = DrumSound::kick;  // used by drums only
  double accent = 1;                 // 0 .. 1
};

struct Part {
  Instrument instrument = Instrument::plucked_string;
  Role role = Role::melody;
  Timbre timbre;
  std::vector<ScoreNote> notes;
};

struct Score {
  int tonic = 0;  // semitones above C
  size_t scale = 0;
  double beats_per_minute = 100;
  int beats_per_bar = 4;
  Dynamics dynamics = Dynamics::medium;
  Room room = Room::dry;
  std::vector<Part> parts;

  bool has_pitch() const;
};

// The scale's notes as pitch classes, 0 being C, in ascending order.
std::vector<int> pitch_classes(const Score& score);

Score compose(uint64_t seed, int64_t index, double seconds);

// `wording` chooses among several ways to say the same.
std::string caption_of(const Score& score, uint64_t wording);

}  // namespace melete
