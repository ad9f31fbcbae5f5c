#include "data/base/synth_instruments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace melete {

namespace {

int64_t samples_in(double seconds, int rate_hz) {
  return std::max<int64_t>(2, std::llround(seconds * rate_hz));
}

Signal silence(double seconds, int rate_hz) {
  return Signal(static_cast<size_t>(samples_in(seconds, rate_hz)), 0.0);
}

// Adds one sine that rises in attack_seconds and then falls by 60 dB in decay_seconds.
void add_partial(Signal& signal, double frequency_hz, double amplitude, double attack_seconds,
                 double decay_seconds, double phase, int rate_hz) {
  if (frequency_hz >= 0.45 * rate_hz || amplitude < 1e-5) return;
  Oscillator oscillator(frequency_hz, phase, rate_hz);
  const double fall = std::pow(10.0, -3.0 / (decay_seconds * rate_hz));
  const double attack = std::max(1.0, attack_seconds * rate_hz);
  double level = amplitude;
  for (size_t i = 0; i < signal.size() && level > 1e-6; ++i) {
    const double rise = std::min(1.0, static_cast<double>(i) / attack);
    signal[i] += level * rise * rise * (3 - 2 * rise) * oscillator.next();
    level *= fall;
  }
}

// Holds for note.seconds, then lets go: the level of a key under a finger.
void shape_loudness(Signal& signal, double attack_seconds, double held_seconds, double release_seconds,
                    int rate_hz) {
  const double attack = attack_seconds * rate_hz, held = held_seconds * rate_hz,
               release = release_seconds * rate_hz;
  for (size_t i = 0; i < signal.size(); ++i) {
    const auto at = static_cast<double>(i);
    const double rise = std::min(1.0, at / attack);
    const double fall = std::clamp(1.0 - (at - held) / release, 0.0, 1.0);
    signal[i] *= rise * rise * (3 - 2 * rise) * fall * fall * (3 - 2 * fall);
  }
}

void finish(Signal& signal, double velocity, int rate_hz) {
  fade(signal, samples_in(0.001, rate_hz), samples_in(0.02, rate_hz));
  const double peak = peak_of(signal);
  if (peak > 0)
    for (double& sample : signal) sample *= velocity / peak;
}

}  // namespace

// Karplus-Strong: a burst of noise in a loop that loses its highs on every round, tuned by an all-pass
// fraction.
Signal plucked_string_note(const NoteRequest& note, const Timbre& timbre, Rng& rng) {
  const int rate = note.rate_hz;
  const double ring_seconds = std::min(note.seconds + 0.35, 3.0);
  Signal out = silence(ring_seconds, rate);
  const double period = rate / note.frequency_hz, angle = kTau / period;

  // The note should fall by 60 dB in about this time. The loop's two-point average already loses something at
  // the fundamental, more so at low sample rates, so it is made gentle enough to leave room for that.
  const double decay_seconds =
      1.2 + 2.2 * timbre.brightness * std::sqrt(220.0 / std::max(note.frequency_hz, 80.0));
  const double kept = std::pow(10.0, -3.0 / (decay_seconds * note.frequency_hz));
  const double room = (1 - kept * kept) / (2 * (1 - std::cos(angle)));
  const double most_blend = room >= 0.25 ? 0.5 : 0.5 * (1 - std::sqrt(1 - 4 * room));
  const double blend = std::min(0.5 - 0.28 * timbre.brightness, most_blend);
  const double average_gain = std::sqrt(1 - 2 * blend * (1 - blend) * (1 - std::cos(angle)));
  const double loss = std::min(0.99999, kept / average_gain);

  // Tuned at the fundamental: whole samples of delay, the average's own, and an all-pass for what is left.
  const double average_delay =
      std::atan2(blend * std::sin(angle), 1 - blend + blend * std::cos(angle)) / angle;
  const auto length = std::max<int64_t>(2, static_cast<int64_t>(std::floor(period - average_delay - 0.1)));
  const double fraction = std::clamp(period - average_delay - static_cast<double>(length), 0.05, 1.5);
  const double all_pass = std::sin((1 - fraction) * angle / 2) / std::sin((1 + fraction) * angle / 2);

  // The pluck: noise, duller when played softly, combed by where the string is plucked.
  Signal burst(static_cast<size_t>(length));
  for (double& sample : burst) sample = rng.uniform(-1, 1);
  low_pass(burst, 900 + 7000 * timbre.brightness * (0.3 + 0.7 * note.velocity), rate);
  const auto position =
      std::max<int64_t>(1, std::llround((0.12 + 0.35 * timbre.colour) * static_cast<double>(length)));
  Signal line(burst.size());
  double mean = 0;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t other = (i - position + length) % length;
    line[static_cast<size_t>(i)] = burst[static_cast<size_t>(i)] - 0.8 * burst[static_cast<size_t>(other)];
    mean += line[static_cast<size_t>(i)] / static_cast<double>(length);
  }
  for (double& sample : line) sample -= mean;

  double before = 0, pass_in = 0, pass_out = 0;
  size_t place = 0;
  for (double& sample : out) {
    const double current = line[place];
    sample = current;
    const double smooth = loss * ((1 - blend) * current + blend * before);
    before = current;
    pass_out = all_pass * (smooth - pass_out) + pass_in;
    pass_in = smooth;
    line[place] = pass_out;
    if (++place == line.size()) place = 0;
  }
  high_pass(out, 40, rate);
  shape_loudness(out, 0.0015, note.seconds, 0.3, rate);
  finish(out, note.velocity, rate);
  return out;
}

// Inharmonic partials, each with its own decay, doubled a little out of tune for the slow beating of cast
// metal.
Signal bell_note(const NoteRequest& note, const Timbre& timbre, Rng& rng) {
  struct Partial {
    double ratio, amplitude, decay;
  };
  static constexpr std::array<Partial, 9> kPartials = {{{0.5, 0.35, 1.0},
                                                        {1.0, 1.0, 0.9},
                                                        {1.19, 0.45, 0.65},
                                                        {1.5, 0.3, 0.5},
                                                        {2.0, 0.6, 0.55},
                                                        {2.74, 0.4, 0.35},
                                                        {3.76, 0.3, 0.25},
                                                        {5.04, 0.22, 0.16},
                                                        {6.8, 0.15, 0.1}}};
  Signal out = silence(std::min(note.seconds + 1.6, 4.0), note.rate_hz);
  const double ring_seconds = 1.6 + 2.4 * timbre.colour;
  for (const Partial& partial : kPartials) {
    const double tilt = std::pow(partial.ratio, -0.9 + 0.9 * timbre.brightness * (0.4 + 0.6 * note.velocity));
    const double beat = rng.uniform(0.3, 1.2) / note.frequency_hz;
    for (const double detune : {-beat, beat}) {
      add_partial(out, note.frequency_hz * (partial.ratio + detune), 0.5 * partial.amplitude * tilt, 0.002,
                  ring_seconds * partial.decay, rng.uniform(0, kTau), note.rate_hz);
    }
  }
  // The strike of the clapper: a moment of filtered noise.
  Signal strike = silence(0.03, note.rate_hz);
  for (double& sample : strike) sample = rng.uniform(-1, 1);
  high_pass(strike, 2000, note.rate_hz);
  fade(strike, samples_in(0.001, note.rate_hz), samples_in(0.027, note.rate_hz));
  mix_into(out, strike, 0, 0.25 * note.velocity);
  fade(out, 0, samples_in(0.4, note.rate_hz));
  finish(out, note.velocity, note.rate_hz);
  return out;
}

// A bright wave whose upper partials die first, as if a filter closed over it.
Signal bass_note(const NoteRequest& note, const Timbre& timbre, Rng& rng) {
  const double release_seconds = 0.06;
  Signal out = silence(note.seconds + release_seconds, note.rate_hz);
  const double steepness = 1.6 - 0.6 * timbre.brightness;
  for (int n = 1; n <= 24; ++n) {
    const double hollow = n % 2 == 0 ? 1.0 - 0.8 * timbre.colour : 1.0;
    const double decay = n == 1 ? 4.0 : 2.5 / (1.0 + 0.55 * (n - 1) * (1.3 - timbre.brightness));
    add_partial(out, note.frequency_hz * n, hollow * std::pow(n, -steepness), 0.006, decay,
                rng.uniform(0, 0.3), note.rate_hz);
  }
  shape_loudness(out, 0.005, note.seconds, release_seconds, note.rate_hz);
  finish(out, note.velocity, note.rate_hz);
  return out;
}

// Three detuned voices that swell slowly; the filter opens on the way.
Signal pad_note(const NoteRequest& note, const Timbre& timbre, Rng& rng) {
  const double attack_seconds = std::min(0.35, 0.4 * note.seconds);
  const double release_seconds = 0.35;
  Signal out = silence(note.seconds + release_seconds, note.rate_hz);
  Signal bright = out;
  for (const double cents : {-4.0 - 7.0 * timbre.colour, 0.0, 4.0 + 7.0 * timbre.colour}) {
    const double frequency = note.frequency_hz * std::exp2((cents + rng.uniform(-1, 1)) / 1200.0);
    for (int n = 1; n <= 16; ++n) {
      // Upper partials go to a second layer that comes in later.
      add_partial(n <= 3 ? out : bright, frequency * n, std::pow(n, -1.7 + 0.7 * timbre.brightness), 0.02,
                  60.0, rng.uniform(0, kTau), note.rate_hz);
    }
  }
  const double swell = 1.0 / static_cast<double>(bright.size());
  for (size_t i = 0; i < bright.size(); ++i) {
    const double along = static_cast<double>(i) * swell;
    out[i] += bright[i] * (0.25 + 0.75 * std::sin(std::numbers::pi * along));
  }
  shape_loudness(out, attack_seconds, note.seconds, release_seconds, note.rate_hz);
  finish(out, note.velocity, note.rate_hz);
  return out;
}

// Drawbars: sines at an organ's footages, and a slow turning speaker over all of them.
Signal organ_note(const NoteRequest& note, const Timbre& timbre, Rng& rng) {
  static constexpr std::array<double, 9> kRatios = {0.5, 1.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0};
  static constexpr std::array<std::array<double, 9>, 3> kRegistrations = {{
      {0.8, 0.8, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0},   // jazz
      {0.6, 0.2, 1.0, 0.8, 0.5, 0.5, 0.25, 0.2, 0.3},  // full
      {0.0, 0.0, 1.0, 0.4, 0.6, 0.0, 0.3, 0.0, 0.0},   // flutes
  }};
  const auto registration = static_cast<size_t>(std::min(2.0, std::floor(timbre.colour * 3)));
  const double release_seconds = 0.07;
  Signal out = silence(note.seconds + release_seconds, note.rate_hz);
  for (size_t i = 0; i < kRatios.size(); ++i) {
    const double tilt = std::pow(kRatios[i], -0.4 + 0.4 * timbre.brightness);
    add_partial(out, note.frequency_hz * kRatios[i], kRegistrations[registration][i] * tilt, 0.004, 60.0,
                rng.uniform(0, kTau), note.rate_hz);
  }
  Oscillator turning(5.5 + timbre.brightness, rng.uniform(0, kTau), note.rate_hz);
  for (double& sample : out) sample *= 1.0 + 0.12 * turning.next();
  shape_loudness(out, 0.012, note.seconds, release_seconds, note.rate_hz);
  finish(out, note.velocity, note.rate_hz);
  return out;
}

Signal drum_hit(DrumSound sound, double velocity, const Timbre& timbre, int rate_hz, Rng& rng) {
  const auto noise = [&](double seconds, double decay_seconds, double low_cut_hz, double high_cut_hz) {
    Signal out = silence(seconds, rate_hz);
    const double fall = std::pow(10.0, -3.0 / (decay_seconds * rate_hz));
    double level = 1;
    for (double& sample : out) {
      sample = level * rng.uniform(-1, 1);
      level *= fall;
    }
    high_pass(out, low_cut_hz, rate_hz);
    high_pass(out, low_cut_hz, rate_hz);
    low_pass(out, high_cut_hz, rate_hz);
    return out;
  };
  Signal out;
  switch (sound) {
    case DrumSound::kick: {
      // A sine that falls from a thump to a hum.
      out = silence(0.35, rate_hz);
      const double low_hz = 45 + 20 * timbre.colour;
      double phase = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        const double seconds = static_cast<double>(i) / rate_hz;
        out[i] = std::sin(phase) * std::exp(-seconds * 13);
        phase += kTau * (low_hz + 140 * std::exp(-seconds * 32)) / rate_hz;
      }
      mix_into(out, noise(0.02, 0.02, 800, 5000), 0, 0.2 + 0.3 * timbre.brightness);
      break;
    }
    case DrumSound::snare: {
      out = noise(0.25, 0.22 + 0.08 * timbre.colour, 500, 9000);
      const double body_hz = 170 + 60 * timbre.colour;
      add_partial(out, body_hz, 0.7, 0.001, 0.18, 0, rate_hz);
      add_partial(out, body_hz * 1.59, 0.4, 0.001, 0.13, 0, rate_hz);
      break;
    }
    case DrumSound::hat:
      out = noise(0.12, 0.06 + 0.08 * timbre.colour, 0.25 * rate_hz, 0.45 * rate_hz);
      break;
  }
  finish(out, velocity, rate_hz);
  return out;
}

Signal play_note(Instrument instrument, const NoteRequest& note, const Timbre& timbre, Rng& rng) {
  switch (instrument) {
    case Instrument::plucked_string:
      return plucked_string_note(note, timbre, rng);
    case Instrument::bell:
      return bell_note(note, timbre, rng);
    case Instrument::bass:
      return bass_note(note, timbre, rng);
    case Instrument::pad:
      return pad_note(note, timbre, rng);
    case Instrument::organ:
      return organ_note(note, timbre, rng);
    case Instrument::drum:
      break;
  }
  fail("[synth] a drum has no pitch; use drum_hit");
}

}  // namespace melete
