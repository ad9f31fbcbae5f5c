#include "data/base/synth_speech.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string_view>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/base/phonemes.h"
#include "data/base/synth_dsp.h"
#include "data/base/synth_files.h"
#include "data/base/synth_sentences.h"
#include "data/base/text_lines.h"
#include "io/base/resample.h"

namespace melete {

namespace {

constexpr std::string_view kAdjectives[] = {
    "old",  "quiet",   "small",  "bright", "young",  "heavy", "gentle",  "golden", "narrow", "strange",
    "cold", "patient", "hungry", "silver", "broken", "early", "distant", "clever", "rough",  "wooden"};
constexpr std::string_view kPeople[] = {"sailor",    "teacher", "baker",    "child",     "farmer",
                                        "painter",   "doctor",  "singer",   "neighbour", "captain",
                                        "traveller", "judge",   "shepherd", "widow"};
constexpr std::string_view kThings[] = {
    "river",  "garden", "letter",  "window", "engine", "orchard", "bridge",  "candle", "mirror", "wagon",
    "forest", "kettle", "harbour", "violin", "ladder", "valley",  "blanket", "church", "ship",   "journey"};
constexpr std::string_view kPastVerbs[] = {
    "watched",  "crossed", "painted",  "found",   "remembered", "described", "carried",  "loved",
    "followed", "opened",  "measured", "guarded", "chose",      "sold",      "finished", "missed"};
constexpr std::string_view kParticiples[] = {"painted", "followed", "opened", "chosen", "sold", "forgotten"};
constexpr std::string_view kSpokenPlaces[] = {
    "near the mill",     "beyond the hills", "at the edge of town",
    "under the bridge",  "by the sea",       "in the northern valley",
    "behind the church", "on the far shore", "across the market square"};
constexpr std::string_view kTimes[] = {"in the morning",  "before the storm",  "every winter",
                                       "late last night", "after the harvest", "on the third day",
                                       "at noon",         "long ago"};
constexpr std::string_view kNumbers[] = {"two",  "three",  "four",   "five",   "seven",
                                         "nine", "eleven", "twelve", "twenty", "forty"};
constexpr std::string_view kUnits[] = {"hours", "miles",  "pages",     "apples",
                                       "years", "stones", "shillings", "steps"};
constexpr std::string_view kFeelings[] = {"happy", "tired", "afraid", "certain",
                                          "proud", "sorry", "alone",  "ready"};

// Sentences from patterns: every <word> is replaced from its list, from left to right.
class Grammar {
 public:
  explicit Grammar(Rng& rng) : rng_(rng) {}

  // The first ten words of each kind, in one pattern, as they are said: no capitals and marks.
  std::string short_sentence() {
    constexpr size_t kWords = 10;
    const auto noun = [&](const auto& nouns) {
      const bool plain = rng_.uniform() < 0.5;
      const std::string adjective = plain ? "" : std::string(among(kAdjectives, kWords)) + " ";
      return fmt::format("the {}{}", adjective, among(nouns, kWords));
    };
    const std::string person = noun(kPeople), verb(among(kPastVerbs, kWords));
    return fmt::format("{} {} {}", person, verb, noun(kThings));
  }

  std::string sentence() {
    static constexpr std::string_view kPatterns[] = {
        "<person> <verb> <thing> <place>.",
        "<time>, <person> <verb> <thing>.",
        "there were <number> <unit> between <thing> and <thing>.",
        "<person> was <feeling> <time>, but <person> was <feeling>.",
        "why had <person> <participle> <thing>?",
        "<person> waited <number> days for <thing>.",
        "<person> said that <thing> stood <place>.",
        "when <person> <verb> <thing>, <thing> fell <place>.",
    };
    const std::string_view pattern = one(kPatterns);
    std::string text;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '<') {
        text += pattern[i];
        continue;
      }
      const size_t end = pattern.find('>', i);
      text += word(pattern.substr(i + 1, end - i - 1));
      i = end;
    }
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return text;
  }

 private:
  template <size_t N>
  std::string_view one(const std::string_view (&words)[N]) {
    return among(words, N);
  }
  template <size_t N>
  std::string_view among(const std::string_view (&words)[N], size_t first) {
    return words[static_cast<size_t>(rng_.integer(0, static_cast<int64_t>(std::min(N, first))))];
  }

  std::string word(std::string_view kind) {
    if (kind == "verb") return std::string(one(kPastVerbs));
    if (kind == "participle") return std::string(one(kParticiples));
    if (kind == "place") return std::string(one(kSpokenPlaces));
    if (kind == "time") return std::string(one(kTimes));
    if (kind == "number") return std::string(one(kNumbers));
    if (kind == "unit") return std::string(one(kUnits));
    if (kind == "feeling") return std::string(one(kFeelings));
    const std::string noun(kind == "person" ? one(kPeople) : one(kThings));
    return rng_.uniform() < 0.4 ? "the " + noun : fmt::format("the {} {}", one(kAdjectives), noun);
  }

  Rng& rng_;
};

int64_t words_in(const std::string& text) {
  return 1 + std::count(text.begin(), text.end(), ' ');
}

// Speakers differ in level as they do in a corpus, always below full scale; no steps at the ends.
std::vector<float> recorded(const EspeakSpeech& speech, const Utterance& utterance, int rate_hz) {
  require(rate_hz >= 4000 && rate_hz <= 192000, "[synth] expected a rate of 4000 to 192000 Hz, got {}",
          rate_hz);
  std::vector<float> samples = Resampler(speech.rate_hz, rate_hz, 24).run(speech.samples);
  require(!samples.empty(), "[synth] espeak-ng gave no sound for \"{}\"", utterance.text);
  float peak = 0;
  for (const float sample : samples) peak = std::max(peak, std::abs(sample));
  Rng rng(random_key(static_cast<uint64_t>(utterance.voice.pitch), utterance.text));
  const double below_full_db = utterance.one_level ? 4 : rng.uniform(2, 9);
  const auto gain = peak > 0 ? static_cast<float>(std::pow(10.0, -below_full_db / 20.0)) / peak : 0.0f;
  Signal signal(samples.begin(), samples.end());
  high_pass(signal, 30, rate_hz);
  fade(signal, rate_hz / 200, rate_hz / 200);
  std::transform(signal.begin(), signal.end(), samples.begin(),
                 [gain](double sample) { return gain * static_cast<float>(sample); });
  return samples;
}

}  // namespace

Utterance make_utterance(uint64_t seed, int64_t index, double seconds, const SpeechStyle& style) {
  static constexpr std::string_view kAccents[] = {"en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-029"};
  static constexpr std::string_view kSpeakers[] = {"m1", "m2", "m3", "m4", "m5", "m6", "m7",
                                                   "m8", "f1", "f2", "f3", "f4", "f5"};
  Rng rng(random_key(seed, "synth speech", {static_cast<uint64_t>(index)}));
  const auto pick = [&](auto& list) {
    return list[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(std::size(list))))];
  };
  Utterance utterance;
  if (style.voices > 0) {
    const auto count = static_cast<int64_t>(std::size(kSpeakers));
    const int64_t speaker = rng.integer(0, std::min(style.voices, count));
    // Men and women by turns: the list has the men first.
    const int64_t place = speaker % 2 == 0 || speaker / 2 >= 5 ? speaker / 2 : 8 + speaker / 2;
    utterance.voice.name = fmt::format("{}+{}", kAccents[0], kSpeakers[static_cast<size_t>(place)]);
    utterance.voice.words_per_minute = static_cast<int>(rng.integer(190, 216));
    utterance.voice.pitch = 30 + static_cast<int>(7 * speaker % 40);
  } else {
    utterance.voice.name = std::string(pick(kAccents));
    utterance.voice.name += fmt::format("+{}", pick(kSpeakers));
    utterance.voice.words_per_minute = static_cast<int>(rng.integer(120, 221));
    utterance.voice.pitch = static_cast<int>(rng.integer(20, 81));
  }
  Grammar grammar(rng);
  const auto sentence = [&] {
    if (style.varied) return varied_sentence(rng);
    return style.short_sentences ? grammar.short_sentence() : grammar.sentence();
  };
  utterance.text = sentence();
  const double words_wanted = seconds * utterance.voice.words_per_minute / 60.0;
  while (static_cast<double>(words_in(utterance.text)) + 4 < words_wanted) utterance.text += " " + sentence();
  return utterance;
}

std::vector<float> speak(const Utterance& utterance, int rate_hz) {
  return recorded(espeak_speak(utterance.text, utterance.voice), utterance, rate_hz);
}

SpokenUtterance speak_timed(const Utterance& utterance, int rate_hz) {
  const EspeakSpeech speech = espeak_speak_timed(utterance.text, utterance.voice);
  SpokenUtterance spoken;
  spoken.samples = recorded(speech, utterance, rate_hz);
  const double seconds = static_cast<double>(speech.samples.size()) / speech.rate_hz;
  // The language is the voice's name without the speaker.
  PhonemizerConfig reading;
  reading.language = utterance.voice.name.substr(0, utterance.voice.name.find('+'));
  spoken.timing.phonemes = Phonemizer(reading)(utterance.text);
  spoken.timing.ends_seconds = ends_of_events(spoken.timing.phonemes, speech, seconds);
  return spoken;
}

int64_t synth_speech(const SynthOptions& given, const ProgressCallback& progress, const SpeechStyle& style) {
  SynthOptions options = given;
  std::vector<std::string> texts;
  if (!options.texts.empty()) {
    texts = text_lines(options.texts);
    options.count = static_cast<int64_t>(texts.size());
  }
  const bool timed = !options.timings.empty();
  std::map<int64_t, SpokenTiming> timings;
  std::mutex mutex;
  write_synth_files(options, "speech", progress, [&](int64_t index) {
    Utterance utterance = make_utterance(options.seed, index, options.seconds, style);
    if (!options.voice.empty()) utterance.voice = {options.voice, utterance.voice.words_per_minute, 50};
    if (options.words_per_minute > 0) {
      utterance.voice.words_per_minute = static_cast<int>(options.words_per_minute);
      utterance.one_level = true;
    }
    if (!texts.empty()) utterance.text = texts[static_cast<size_t>(index)];
    if (!timed) return SynthFile{speak(utterance, options.rate_hz), utterance.text};
    SpokenUtterance spoken = speak_timed(utterance, options.rate_hz);
    spoken.timing.path = synth_path(options, "speech", index);
    const std::lock_guard lock(mutex);
    timings[index] = std::move(spoken.timing);
    return SynthFile{std::move(spoken.samples), utterance.text};
  });
  if (!timed) return options.count;
  Timings all;
  for (auto& [index, timing] : timings) all.list.push_back(std::move(timing));
  write_timings(options.timings, all);
  return options.count;
}

}  // namespace melete
