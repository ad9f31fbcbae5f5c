#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "data/base/inspect.h"
#include "data/base/synth_instruments.h"
#include "data/base/synth_music.h"
#include "data/base/synth_score.h"
#include "data/base/synth_speech.h"
#include "io/base/audio_file.h"
#include "temporary_folder.h"

namespace melete {
namespace synth_test {

namespace fs = std::filesystem;
using testing::read_bytes;
using testing::TemporaryFolder;

double peak(const std::vector<float>& samples) {
  double largest = 0;
  for (const float sample : samples) largest = std::max(largest, std::abs(static_cast<double>(sample)));
  return largest;
}

double mean(const std::vector<float>& samples) {
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double energy(const std::vector<float>& samples, double from, double to) {
  double sum = 0;
  const auto size = static_cast<double>(samples.size());
  for (auto i = static_cast<size_t>(from * size); i < static_cast<size_t>(to * size); ++i)
    sum += static_cast<double>(samples[i]) * samples[i];
  return sum;
}

TEST(SynthMusic, IsAFunctionOfSeedAndIndex) {
  const MusicPiece piece = synth_music_piece(1, 12);
  EXPECT_EQ(synth_music_piece(1, 12).samples, piece.samples);
  EXPECT_EQ(synth_music_piece(1, 12).caption, piece.caption);
  EXPECT_NE(synth_music_piece(2, 12).samples, piece.samples);
  EXPECT_NE(synth_music_piece(1, 13).samples, piece.samples);
  EXPECT_EQ(piece.samples.size(), 96000u);
}

TEST(SynthMusic, LevelsAreSound) {
  for (const int rate_hz : {8000, 24000, 44100}) {
    for (int64_t index = 0; index < 25; ++index) {
      const MusicPiece piece = synth_music_piece(5, index, rate_hz, 2.0);
      ASSERT_EQ(piece.samples.size(), static_cast<size_t>(2 * rate_hz));
      EXPECT_LT(peak(piece.samples), 0.9) << index;
      EXPECT_GT(peak(piece.samples), 0.1) << index;
      EXPECT_LT(std::abs(mean(piece.samples)), 1e-3) << index;
      // No step at the ends: a loop or a cut there would click.
      EXPECT_LT(std::abs(piece.samples.front()), 1e-3);
      EXPECT_LT(std::abs(piece.samples.back()), 1e-3);
      for (const float sample : piece.samples) ASSERT_TRUE(std::isfinite(sample));
    }
  }
  EXPECT_THROW(synth_music_piece(0, 0, 100, 2.0), Error);
  EXPECT_THROW(synth_music_piece(0, 0, 24000, 0.01), Error);
}

TEST(SynthMusic, CaptionsSayWhatIsHeard) {
  std::set<std::string> captions;
  std::set<Instrument> instruments;
  for (int64_t index = 0; index < 200; ++index) {
    const Score score = compose(9, index, 2.0);
    const MusicPiece piece = synth_music_piece(9, index, 8000, 2.0);
    captions.insert(piece.caption);
    for (const Part& part : score.parts) {
      instruments.insert(part.instrument);
      EXPECT_FALSE(part.notes.empty()) << piece.caption;
    }
    const auto says = [&](const char* word) { return piece.caption.find(word) != std::string::npos; };
    const auto plays = [&](Instrument instrument) {
      return std::any_of(score.parts.begin(), score.parts.end(),
                         [&](const Part& part) { return part.instrument == instrument; });
    };
    EXPECT_EQ(says("plucked string"), plays(Instrument::plucked_string)) << piece.caption;
    EXPECT_EQ(says("bell"), plays(Instrument::bell)) << piece.caption;
    EXPECT_EQ(says("bass line"), plays(Instrument::bass)) << piece.caption;
    EXPECT_EQ(says("pad"), plays(Instrument::pad)) << piece.caption;
    EXPECT_EQ(says("organ"), plays(Instrument::organ)) << piece.caption;
    EXPECT_EQ(says("drum"), plays(Instrument::drum)) << piece.caption;
    EXPECT_EQ(says("cathedral"), score.room == Room::cathedral) << piece.caption;
    const double early = energy(piece.samples, 0.05, 0.4), late = energy(piece.samples, 0.6, 0.9);
    if (says("growing louder")) {
      EXPECT_GT(late, early) << index << " " << piece.caption;
    }
    if (says("growing quieter")) {
      EXPECT_LT(late, early) << index << " " << piece.caption;
    }
    if (says("softly")) {
      EXPECT_LT(peak(piece.samples), 0.2) << piece.caption;
    }
    if (says("loudly")) {
      EXPECT_GT(peak(piece.samples), 0.6) << piece.caption;
    }
  }
  EXPECT_GT(captions.size(), 195u);
  EXPECT_EQ(instruments.size(), 6u);
}

// The strongest frequency near an expected one, by correlation with sines.
double strongest_near(const Signal& signal, double expected_hz, int rate_hz) {
  double best = 0, best_hz = 0;
  for (double cents = -60; cents <= 60; cents += 2) {
    const double frequency = expected_hz * std::exp2(cents / 1200);
    double real = 0, imaginary = 0;
    for (size_t i = 0; i < signal.size(); ++i) {
      const double angle = 6.283185307179586 * frequency * static_cast<double>(i) / rate_hz;
      real += signal[i] * std::cos(angle);
      imaginary += signal[i] * std::sin(angle);
    }
    if (real * real + imaginary * imaginary > best) {
      best = real * real + imaginary * imaginary;
      best_hz = frequency;
    }
  }
  return best_hz;
}

TEST(SynthInstruments, PlayInTune) {
  for (const auto instrument :
       {Instrument::plucked_string, Instrument::bass, Instrument::pad, Instrument::organ}) {
    for (const double frequency : {110.0, 261.63, 523.25, 880.0}) {
      Rng rng(4);
      const Signal note = play_note(instrument, {frequency, 1.0, 0.8, 24000}, {0.6, 0.9}, rng);
      const double cents = 1200 * std::log2(strongest_near(note, frequency, 24000) / frequency);
      // A pad is three voices some cents apart.
      EXPECT_LE(std::abs(cents), instrument == Instrument::pad ? 14 : 6)
          << static_cast<int>(instrument) << " at " << frequency;
    }
  }
}

TEST(SynthInstruments, NotesBeginAndEndAtZero) {
  for (const auto instrument :
       {Instrument::plucked_string, Instrument::bell, Instrument::bass, Instrument::pad, Instrument::organ}) {
    Rng rng(4);
    const Signal note = play_note(instrument, {440, 0.3, 0.8, 24000}, {0.5, 0.5}, rng);
    EXPECT_LT(std::abs(note.front()), 1e-6);
    EXPECT_LT(std::abs(note.back()), 1e-3);
    EXPECT_NEAR(peak_of(note), 0.8, 1e-9);
  }
}

TEST(SynthMusic, FilesAreTheSameEveryTimeAndPassTheCheck) {
  const TemporaryFolder folder;
  SynthOptions options;
  options.count = 12;
  options.seed = 3;
  options.seconds = 1.5;
  for (const std::string format : {"flac", "wav"}) {
    options.format = format;
    options.folder = folder.path() + "/a_" + format;
    synth_music(options);
    options.folder = folder.path() + "/b_" + format;
    synth_music(options);
    for (int i = 0; i < 12; ++i) {
      const std::string name = fmt::format("/music_{:06}.", i);
      const std::string a = folder.path() + "/a_" + format + name, b = folder.path() + "/b_" + format + name;
      EXPECT_EQ(read_bytes(a + format), read_bytes(b + format));
      EXPECT_EQ(read_bytes(a + "txt"), read_bytes(b + "txt"));
      EXPECT_GT(read_bytes(a + "txt").size(), 30u);
    }
    EXPECT_TRUE(check_data(options.folder).findings.empty()) << check_data(options.folder).table();
    const auto entries = load_entries(options.folder);
    ASSERT_EQ(entries.size(), 12u);
    EXPECT_EQ(entries[3].text + "\n", read_bytes(options.folder + "/music_000003.txt"));
    EXPECT_EQ(entries[3].rate_hz, 24000);
  }
  options.seed = 4;
  options.format = "flac";
  options.folder = folder.path() + "/c";
  synth_music(options);
  EXPECT_NE(read_bytes(folder.path() + "/c/music_000000.flac"),
            read_bytes(folder.path() + "/a_flac/music_000000.flac"));
  options.format = "mp3";
  EXPECT_THROW(synth_music(options), Error);
}

TEST(SynthSpeech, UtterancesAreVariedAndDeterministic) {
  std::set<std::string> texts, voices;
  for (int64_t index = 0; index < 300; ++index) {
    const Utterance utterance = make_utterance(1, index);
    EXPECT_EQ(make_utterance(1, index).text, utterance.text);
    EXPECT_EQ(utterance.text.find('<'), std::string::npos);
    texts.insert(utterance.text);
    voices.insert(utterance.voice.name);
  }
  EXPECT_GT(texts.size(), 290u);
  EXPECT_GT(voices.size(), 40u);
  EXPECT_GT(make_utterance(1, 0, 30).text.size(), 4 * make_utterance(1, 0).text.size());
}

TEST(SynthSpeech, SpeaksOrNamesThePackage) {
  if (!espeak_installed()) {
    try {
      speak(make_utterance(1, 0));
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("espeak-ng"), std::string::npos);
    }
    GTEST_SKIP() << "espeak-ng is not installed";
  }
  for (int64_t index = 0; index < 4; ++index) {
    const Utterance utterance = make_utterance(2, index);
    const auto samples = speak(utterance, 16000);
    EXPECT_EQ(speak(utterance, 16000), samples);
    EXPECT_GT(samples.size(), 8000u);
    EXPECT_LT(samples.size(), 16000u * 15);
    EXPECT_LT(peak(samples), 0.9);
    EXPECT_GT(peak(samples), 0.2);
    EXPECT_LT(std::abs(mean(samples)), 1e-3);
  }
  EXPECT_NE(speak(make_utterance(2, 0), 16000), speak(make_utterance(3, 0), 16000));
}

}  // namespace synth_test
}  // namespace melete
