// The instruments of the built-in synthesizer. A note is a function of its arguments; every one begins and
// ends at zero, stays below half the sample rate, and peaks near 1 at velocity 1.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/random.h"
#include "data/base/synth_dsp.h"

namespace melete {

enum class Instrument { plucked_string, bell, bass, pad, organ, drum };
enum class DrumSound { kick, snare, hat };

struct NoteRequest {
  double frequency_hz = 440;
  double seconds = 0.5;   // how long the key is held; some sounds ring on after that
  double velocity = 0.8;  // 0 .. 1: louder and brighter
  int rate_hz = 24000;
};

// How one player sounds in one piece: fixed for the piece, so that its notes belong together.
struct Timbre {
  double brightness = 0.5;  // 0 .. 1
  double colour = 0.5;      // 0 .. 1: pluck position, bell material, organ registration, pad width
};

Signal plucked_string_note(const NoteRequest& note, const Timbre& timbre, Rng& rng);
Signal bell_note(const NoteRequest& note, const Timbre& timbre, Rng& rng);
Signal bass_note(const NoteRequest& note, const Timbre& timbre, Rng& rng);
Signal pad_note(const NoteRequest& note, const Timbre& timbre, Rng& rng);
Signal organ_note(const NoteRequest& note, const Timbre& timbre, Rng& rng);
Signal drum_hit(DrumSound sound, double velocity, const Timbre& timbre, int rate_hz, Rng& rng);

// Any of the pitched ones above.
Signal play_note(Instrument instrument, const NoteRequest& note, const Timbre& timbre, Rng& rng);

}  // namespace melete
