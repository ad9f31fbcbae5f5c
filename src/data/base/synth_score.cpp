#include "data/base/synth_score.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/base/error.h"

namespace melete {

namespace {

struct Scale {
  std::string_view name;  // after the tonic: "D minor"
  std::string_view mood;
  std::vector<int> steps;  // semitones above the tonic
};

const std::vector<Scale>& scales() {
  static const std::vector<Scale> list = {
      {"major", "cheerful", {0, 2, 4, 5, 7, 9, 11}},
      {"minor", "melancholy", {0, 2, 3, 5, 7, 8, 10}},
      {"dorian", "wistful", {0, 2, 3, 5, 7, 9, 10}},
      {"phrygian", "dark", {0, 1, 3, 5, 7, 8, 10}},
      {"lydian", "floating", {0, 2, 4, 6, 7, 9, 11}},
      {"harmonic minor", "dramatic", {0, 2, 3, 5, 7, 8, 11}},
      {"major pentatonic", "open", {0, 2, 4, 7, 9}},
      {"minor pentatonic", "earthy", {0, 3, 5, 7, 10}},
      {"whole-tone", "dreamlike", {0, 2, 4, 6, 8, 10}},
  };
  return list;
}

constexpr std::array<std::string_view, 12> kTonics = {"C", "C sharp", "D", "E flat", "E", "F", "F sharp",
                                                      "G", "A flat",  "A", "B flat", "B"};

template <class List>
const auto& choose(const List& list, Rng& rng) {
  return list[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(std::size(list))))];
}

// Degrees may go below the tonic or above the octave.
int semitone_of(const Scale& scale, int degree) {
  const auto count = static_cast<int>(scale.steps.size());
  const int octave = degree >= 0 ? degree / count : -((-degree + count - 1) / count);
  return 12 * octave + scale.steps[static_cast<size_t>(degree - octave * count)];
}

// Writes the parts of one score; all of them follow one progression of chords.
class Composer {
 public:
  Composer(Score& score, double seconds, Rng& rng)
      : score_(score),
        scale_(scales()[score.scale]),
        rng_(rng),
        end_beat_(seconds * score.beats_per_minute / 60.0) {
    static const std::vector<std::vector<int>> seven = {{0, 3, 4, 0}, {0, 5, 3, 4}, {0, 4, 5, 3},
                                                        {0, 3, 0, 4}, {0, 6, 5, 6}, {0, 1, 4, 0}};
    static const std::vector<std::vector<int>> fewer = {{0, 3, 0, 2}, {0, 2, 3, 0}, {0, 0, 3, 2}};
    progression_ = choose(scale_.steps.size() == 7 ? seven : fewer, rng);
    // Slow pieces change harmony within the bar, or a short one would have a single chord.
    chord_beats_ = score.beats_per_bar == 4 && score.beats_per_minute < 92 ? 2 : score.beats_per_bar;
  }

  void write(Part& part) {
    switch (part.role) {
      case Role::melody:
        return melody(part);
      case Role::chords:
        return chords(part);
      case Role::arpeggio:
        return arpeggio(part);
      case Role::bass:
        return bass(part);
      case Role::rhythm:
        return rhythm(part);
    }
  }

 private:
  int chord_at(double beat) const {
    return progression_[static_cast<size_t>(beat / chord_beats_ + 1e-9) % progression_.size()];
  }

  // Notes that begin too near the end would be cut before they are heard.
  bool fits(double beat) const {
    return beat < 1e-9 || beat + 0.25 * score_.beats_per_minute / 60.0 < end_beat_;
  }

  void add(Part& part, double beat, double beats, int degree, int base, double accent) {
    if (!fits(beat)) return;
    part.notes.push_back({beat, beats, base + score_.tonic + semitone_of(scale_, degree), DrumSound::kick,
                          accent * rng_.uniform(0.9, 1.0)});
  }

  void melody(Part& part) {
    static const std::vector<std::vector<double>> four = {
        {1, 1, 1, 1},     {1, 0.5, 0.5, 1, 1},        {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1},
        {1.5, 0.5, 1, 1}, {0.5, 0.5, 1, 0.5, 0.5, 1}, {2, 1, 1}};
    static const std::vector<std::vector<double>> three = {
        {1, 1, 1}, {1, 0.5, 0.5, 1}, {2, 1}, {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, {1.5, 0.5, 1}};
    const auto& rhythms = score_.beats_per_bar == 4 ? four : three;
    // One rhythm comes back every other bar, so that there is something to recognise.
    const std::vector<double> motif = choose(rhythms, rng_);
    const int base = part.instrument == Instrument::bell ? 72 : 60;
    int degree = choose(std::array<int, 3>{0, 2, 4}, rng_);
    int bar = 0;
    for (double bar_beat = 0; bar_beat < end_beat_; bar_beat += score_.beats_per_bar, ++bar) {
      double beat = bar_beat;
      for (const double beats : bar % 2 == 0 ? motif : choose(rhythms, rng_)) {
        const bool strong = std::abs(beat - std::round(beat)) < 1e-9;
        if (strong) {
          // Strong beats take the nearest note of the chord.
          const int root = chord_at(beat);
          int best = degree;
          for (int candidate = degree - 2; candidate <= degree + 2; ++candidate) {
            const int count = static_cast<int>(scale_.steps.size());
            const int above = ((candidate - root) % count + count) % count;
            if ((above == 0 || above == 2 || above == 4) && rng_.uniform() < 0.6) best = candidate;
          }
          degree = best;
        }
        degree = std::clamp(degree, -2, 10);
        const bool rest = beat != bar_beat && rng_.uniform() < 0.06;
        if (!rest) add(part, beat, 0.92 * beats, degree, base, beat == bar_beat ? 1.0 : strong ? 0.88 : 0.75);
        degree += static_cast<int>(choose(std::array<int, 7>{-2, -1, -1, 0, 1, 1, 2}, rng_));
        beat += beats;
      }
    }
  }

  void chords(Part& part) {
    for (double beat = 0; beat < end_beat_; beat += chord_beats_) {
      const int root = chord_at(beat);
      const double beats = std::min(chord_beats_ * 0.98, std::max(0.5, end_beat_ - beat));
      for (const int above : {0, 2, 4}) add(part, beat, beats, root + above, 48, 0.8);
    }
  }

  void arpeggio(Part& part) {
    static constexpr std::array<std::array<int, 4>, 3> kShapes = {{{0, 2, 4, 2}, {0, 4, 2, 4}, {0, 2, 4, 7}}};
    const auto shape = choose(kShapes, rng_);
    size_t step = 0;
    for (double beat = 0; beat < end_beat_; beat += 0.5, ++step)
      add(part, beat, 0.9, chord_at(beat) + shape[step % shape.size()], 48, step % 2 == 0 ? 0.85 : 0.7);
  }

  void bass(Part& part) {
    const int style = static_cast<int>(rng_.integer(0, 3));
    const double step = style == 0 ? 1.0 : style == 1 ? 0.5 : 2.0;
    int count = 0;
    for (double beat = 0; beat < end_beat_; beat += step, ++count) {
      const int fifth = style == 0 && count % 4 == 3 ? 4 : 0;
      // Roots from the sixth degree up go down an octave, to stay in the register of a bass.
      const int root = chord_at(beat);
      const int octaves = root > 4 ? -static_cast<int>(scale_.steps.size()) : 0;
      add(part, beat, 0.85 * step, root + fifth + octaves, 36, count % 2 == 0 ? 1.0 : 0.85);
    }
  }

  void rhythm(Part& part) {
    const auto hit = [&](double beat, DrumSound sound, double accent) {
      if (fits(beat)) part.notes.push_back({beat, 0.25, 0, sound, accent * rng_.uniform(0.85, 1.0)});
    };
    const bool driving = rng_.uniform() < 0.4;
    const double hat_step = score_.beats_per_minute > 130 || rng_.uniform() < 0.3 ? 1.0 : 0.5;
    for (double bar = 0; bar < end_beat_; bar += score_.beats_per_bar) {
      for (double beat = 0; beat < score_.beats_per_bar; beat += hat_step)
        hit(bar + beat, DrumSound::hat, std::fmod(beat, 1.0) == 0 ? 0.45 : 0.3);
      for (int beat = 0; beat < score_.beats_per_bar; ++beat) {
        const bool back = score_.beats_per_bar == 4 ? beat % 2 == 1 : beat > 0;
        if (driving || beat == 0 || (score_.beats_per_bar == 4 && beat == 2))
          hit(bar + beat, DrumSound::kick, 1.0);
        if (back) hit(bar + beat, DrumSound::snare, score_.beats_per_bar == 4 ? 0.8 : 0.5);
      }
      if (rng_.uniform() < 0.4) hit(bar + score_.beats_per_bar - 0.5, DrumSound::kick, 0.7);
    }
  }

  Score& score_;
  const Scale& scale_;
  Rng& rng_;
  double end_beat_;
  std::vector<int> progression_;
  double chord_beats_ = 4;
};

std::string_view instrument_name(Instrument instrument) {
  switch (instrument) {
    case Instrument::plucked_string:
      return "plucked string";
    case Instrument::bell:
      return "bell";
    case Instrument::bass:
      return "bass";
    case Instrument::pad:
      return "pad";
    case Instrument::organ:
      return "organ";
    case Instrument::drum:
      return "drums";
  }
  return "";
}

std::string_view timbre_word(const Timbre& timbre) {
  return timbre.brightness < 0.33 ? "mellow " : timbre.brightness > 0.67 ? "bright " : "";
}

std::string with_article(std::string phrase) {
  const bool vowel = std::string_view("aeio").find(phrase.front()) != std::string_view::npos;
  return (vowel ? "an " : "a ") + phrase;
}

std::string part_phrase(const Part& part, const Score& score) {
  const std::string name = fmt::format("{}{}", timbre_word(part.timbre), instrument_name(part.instrument));
  switch (part.role) {
    case Role::melody:
      return with_article(name) + " melody";
    case Role::chords:
      return name + " chords";
    case Role::arpeggio:
      return name + " arpeggios";
    case Role::bass:
      return with_article(name) + " line";
    case Role::rhythm:
      return score.beats_per_bar == 3 ? "a waltz beat on drums" : "a drum beat";
  }
  return {};
}

std::string joined(const std::vector<std::string>& phrases) {
  std::string out;
  for (size_t i = 0; i < phrases.size(); ++i)
    out += (i == 0 ? "" : i + 1 == phrases.size() ? " and " : ", ") + phrases[i];
  return out;
}

std::string capitalised(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

bool Score::has_pitch() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.role != Role::rhythm; });
}

Score compose(uint64_t seed, int64_t index, double seconds) {
  Rng rng(random_key(seed, "synth music score", {static_cast<uint64_t>(index)}));
  Score score;
  score.tonic = static_cast<int>(rng.integer(0, 12));
  score.scale = static_cast<size_t>(rng.integer(0, static_cast<int64_t>(scales().size())));
  score.beats_per_minute = std::round(60.0 * std::pow(2.75, rng.uniform()));
  score.beats_per_bar = rng.uniform() < 0.22 ? 3 : 4;
  score.dynamics = choose(std::array{Dynamics::soft, Dynamics::medium, Dynamics::medium, Dynamics::loud,
                                     Dynamics::growing, Dynamics::fading},
                          rng);
  score.room = choose(std::array{Room::dry, Room::small_room, Room::hall, Room::cathedral}, rng);

  const auto lead = choose(std::array{Instrument::plucked_string, Instrument::bell, Instrument::organ}, rng);
  const auto add = [&](Instrument instrument, Role role) {
    score.parts.push_back({instrument, role, {rng.uniform(), rng.uniform()}, {}});
  };
  const auto add_harmony = [&] {
    // Not the instrument of the melody again: two of the same would be heard as one.
    const double kind = rng.uniform();
    if (kind < 0.3 && lead != Instrument::plucked_string) {
      add(Instrument::plucked_string, Role::arpeggio);
    } else if (kind < 0.5 && lead != Instrument::organ) {
      add(Instrument::organ, Role::chords);
    } else {
      add(Instrument::pad, Role::chords);
    }
  };
  const double ensemble = rng.uniform();
  if (ensemble < 0.04) {
    add(Instrument::drum, Role::rhythm);
  } else if (ensemble < 0.10) {
    add(Instrument::bass, Role::bass);
    add(Instrument::drum, Role::rhythm);
  } else if (ensemble < 0.16) {
    add(Instrument::pad, Role::chords);
  } else {
    add(lead, Role::melody);
    const bool harmony = ensemble > 0.40, bass = rng.uniform() < 0.5, drums = rng.uniform() < 0.45;
    if (harmony) add_harmony();
    if (bass && ensemble > 0.28) add(Instrument::bass, Role::bass);
    if (drums && ensemble > 0.28) add(Instrument::drum, Role::rhythm);
  }
  Composer composer(score, seconds, rng);
  for (Part& part : score.parts) composer.write(part);
  return score;
}

std::vector<int> pitch_classes(const Score& score) {
  std::vector<int> classes;
  for (const int step : scales()[score.scale].steps) classes.push_back((score.tonic + step) % 12);
  std::sort(classes.begin(), classes.end());
  return classes;
}

std::string caption_of(const Score& score, uint64_t wording) {
  const Scale& scale = scales()[score.scale];
  const std::string_view pace = score.beats_per_minute < 84    ? "slow"
                                : score.beats_per_minute < 120 ? "moderate"
                                                               : "fast";
  const std::string tempo = fmt::format("{:.0f} beats per minute", score.beats_per_minute);
  const std::string key = fmt::format("{} {}", kTonics[static_cast<size_t>(score.tonic)], scale.name);
  std::string_view loudness, room;
  switch (score.dynamics) {
    case Dynamics::soft:
      loudness = "played softly";
      break;
    case Dynamics::medium:
      loudness = "played at medium volume";
      break;
    case Dynamics::loud:
      loudness = "played loudly";
      break;
    case Dynamics::growing:
      loudness = "growing louder";
      break;
    case Dynamics::fading:
      loudness = "growing quieter";
      break;
  }
  switch (score.room) {
    case Room::dry:
      room = "with no echo";
      break;
    case Room::small_room:
      room = "in a small room";
      break;
    case Room::hall:
      room = "in a concert hall";
      break;
    case Room::cathedral:
      room = "in a cathedral";
      break;
  }
  std::vector<std::string> phrases;
  for (const Part& part : score.parts) phrases.push_back(part_phrase(part, score));
  const std::string players = joined(phrases);
  const std::string meter = score.beats_per_bar == 3 ? " in three-four time" : "";
  if (!score.has_pitch())
    return capitalised(
        fmt::format("{} alone, {} at {}{}, {}, {}.", players, pace, tempo, meter, loudness, room));
  switch (wording % 4) {
    case 0:
      return capitalised(fmt::format("{} in {}, {} and {}, {} at {}{}, {}.", players, key, scale.mood,
                                     loudness, pace, tempo, meter, room));
    case 1:
      return capitalised(fmt::format("{} {} piece in {}{} with {}, {}, {}, {}.",
                                     with_article(std::string(pace)), scale.mood, key, meter, players,
                                     loudness, room, tempo));
    case 2:
      return capitalised(fmt::format("{}, {} music {}: {}, in {} at {}{}, {}.", scale.mood, pace, room,
                                     players, key, tempo, meter, loudness));
    default:
      return capitalised(fmt::format("{} music in {}{}, {} ({}), {}: {}, {}.", scale.mood, key, meter, pace,
                                     tempo, loudness, players, room));
  }
}

}  // namespace melete
