#include "data/base/synth_music.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/base/error.h"
#include "data/base/synth_files.h"
#include "data/base/synth_score.h"

namespace melete {

namespace {

double frequency_of(int semitone) {
  return 440.0 * std::exp2((semitone - 69) / 12.0);
}

double velocity_at(Dynamics dynamics, double along) {
  switch (dynamics) {
    case Dynamics::soft:
      return 0.4;
    case Dynamics::medium:
      return 0.65;
    case Dynamics::loud:
      return 0.95;
    case Dynamics::growing:
      return 0.35 + 0.6 * along;
    case Dynamics::fading:
      return 0.95 - 0.6 * along;
  }
  return 0.65;
}

double peak_dbfs(Dynamics dynamics) {
  switch (dynamics) {
    case Dynamics::soft:
      return -15;
    case Dynamics::medium:
      return -7;
    default:
      return -1.5;
  }
}

// How strong a part sounds while it plays: its loudest 50 ms windows, so that a sparse part counts as
// much as a held one.
double playing_level(const Signal& track, int rate_hz) {
  const auto window = static_cast<size_t>(std::max(1, rate_hz / 20));
  std::vector<double> levels;
  for (size_t begin = 0; begin + window <= track.size(); begin += window) {
    double energy = 0;
    for (size_t i = begin; i < begin + window; ++i) energy += track[i] * track[i];
    levels.push_back(energy / static_cast<double>(window));
  }
  if (levels.empty()) return rms_of(track);
  std::sort(levels.begin(), levels.end(), std::greater<>());
  levels.resize((levels.size() * 4 + 9) / 10);
  return std::sqrt(std::accumulate(levels.begin(), levels.end(), 0.0) / static_cast<double>(levels.size()));
}

double role_level(Role role) {
  switch (role) {
    case Role::melody:
      return 1.0;
    case Role::chords:
      return 0.55;
    case Role::arpeggio:
      return 0.6;
    case Role::bass:
      return 0.8;
    case Role::rhythm:
      return 0.75;
  }
  return 1.0;
}

Signal render_part(const Part& part, const Score& score, double seconds, int rate_hz, Rng& rng) {
  Signal track(static_cast<size_t>(std::llround(seconds * rate_hz)), 0.0);
  const double beat_seconds = 60.0 / score.beats_per_minute;
  for (const ScoreNote& note : part.notes) {
    const double begin_seconds = note.begin_beat * beat_seconds;
    const double velocity = note.accent * velocity_at(score.dynamics, std::min(1.0, begin_seconds / seconds));
    // A human hand is some milliseconds early or late; the very first note keeps a little silence before it.
    const double hand_seconds = std::max(0.01, begin_seconds + rng.uniform(-0.006, 0.006));
    const auto begin = static_cast<int64_t>(std::llround(hand_seconds * rate_hz));
    if (begin >= static_cast<int64_t>(track.size())) continue;
    const Signal sound =
        part.instrument == Instrument::drum
            ? drum_hit(note.drum, velocity, part.timbre, rate_hz, rng)
            : play_note(part.instrument,
                        {frequency_of(note.semitone), note.beats * beat_seconds, velocity, rate_hz},
                        part.timbre, rng);
    mix_into(track, sound, begin, 1.0);
  }
  return track;
}

// Caption and sound must agree: a piece that grows or fades does so by 18 dB, whatever its notes do.
void shape_dynamics(Signal& signal, Dynamics dynamics) {
  if (dynamics != Dynamics::growing && dynamics != Dynamics::fading) return;
  const auto last = static_cast<double>(signal.size() - 1);
  for (size_t i = 0; i < signal.size(); ++i) {
    const double along = static_cast<double>(i) / last;
    signal[i] *= std::pow(10.0, -0.9 * (dynamics == Dynamics::growing ? 1 - along : along));
  }
}

void add_room(Signal& signal, Room room, int rate_hz) {
  const auto add = [&](double decay_seconds, double size, double damping_hz, double share) {
    const Signal wet = reverberate(signal, decay_seconds, size, damping_hz, rate_hz);
    const double level = rms_of(wet), gain = level > 0 ? share * rms_of(signal) / level : 0;
    for (size_t i = 0; i < signal.size(); ++i) signal[i] += gain * wet[i];
  };
  switch (room) {
    case Room::dry:
      return;
    case Room::small_room:
      return add(0.35, 0.25, 5000, 0.35);
    case Room::hall:
      return add(1.6, 0.9, 5500, 0.45);
    case Room::cathedral:
      return add(4.5, 1.5, 4000, 0.65);
  }
}

}  // namespace

MusicPiece synth_music_piece(uint64_t seed, int64_t index, int rate_hz, double seconds) {
  require(rate_hz >= 4000 && rate_hz <= 192000, "[synth] expected a rate of 4000 to 192000 Hz, got {}",
          rate_hz);
  require(seconds >= 0.5 && seconds <= 600, "[synth] expected 0.5 to 600 seconds, got {}", seconds);
  const Score score = compose(seed, index, seconds);
  Rng rng(random_key(seed, "synth music sound", {static_cast<uint64_t>(index)}));

  Signal mix(static_cast<size_t>(std::llround(seconds * rate_hz)), 0.0);
  for (const Part& part : score.parts) {
    const Signal track = render_part(part, score, seconds, rate_hz, rng);
    const double level = playing_level(track, rate_hz);
    if (level > 0) mix_into(mix, track, 0, role_level(part.role) / level);
  }
  shape_dynamics(mix, score.dynamics);
  add_room(mix, score.room, rate_hz);
  high_pass(mix, 25, rate_hz);
  fade(mix, rate_hz / 200, static_cast<int64_t>(std::llround(std::min(0.2, 0.1 * seconds) * rate_hz)));

  const double target = std::pow(10.0, (peak_dbfs(score.dynamics) - rng.uniform(0, 2)) / 20.0);
  const double peak = peak_of(mix), gain = peak > 0 ? target / peak : 0;
  MusicPiece piece{{}, rate_hz, caption_of(score, rng.next())};
  piece.samples.reserve(mix.size());
  for (const double sample : mix) piece.samples.push_back(static_cast<float>(gain * sample));
  return piece;
}

void synth_music(const SynthOptions& options, const ProgressCallback& progress) {
  const double seconds = options.seconds > 0 ? options.seconds : 4.0;
  write_synth_files(options, "music", progress, [&](int64_t index) {
    MusicPiece piece = synth_music_piece(options.seed, index, options.rate_hz, seconds);
    return SynthFile{std::move(piece.samples), std::move(piece.caption)};
  });
}

}  // namespace melete
