// Sound as bytes while it is made: in any pieces the same, and read back by the readers of files.
#include "io/base/audio_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "temporary_folder.h"

namespace melete {
namespace audio_stream_test {

using testing::TemporaryFolder;

std::vector<float> chirp(size_t count) {
  std::vector<float> samples(count);
  for (size_t i = 0; i < count; ++i) {
    const double t = static_cast<double>(i) / 16000;
    samples[i] = static_cast<float>(0.6 * std::sin(2 * M_PI * (200 + 300 * t) * t));
  }
  return samples;
}

std::string streamed(const std::string& format, int rate_hz, const std::vector<float>& samples,
                     size_t piece) {
  AudioStream stream(format, rate_hz);
  std::string bytes;
  for (size_t at = 0; at < samples.size(); at += piece)
    bytes += stream.push(std::span(samples).subspan(at, std::min(piece, samples.size() - at)));
  return bytes + stream.finish();
}

TEST(AudioStreams, PiecesGiveTheSoundOfTheWhole) {
  TemporaryFolder folder;
  const std::vector<float> samples = chirp(20011);
  for (const std::string format : {"wav", "flac", "opus"}) {
    std::string path;
    for (const size_t piece : {size_t{1}, size_t{700}, size_t{5000}, samples.size()}) {
      path = folder / fmt::format("{}.{}", piece, format);
      std::ofstream(path, std::ios::binary) << streamed(format, 16000, samples, piece);
      const Audio audio = read_audio(path);
      EXPECT_EQ(audio.rate_hz, 16000);
      EXPECT_EQ(audio.channels, 1);
      ASSERT_EQ(audio.samples.size(), samples.size()) << format << " " << piece;
      double power = 0, error = 0;
      for (size_t i = 0; i < samples.size(); ++i) {
        power += samples[i] * samples[i];
        error += (audio.samples[i] - samples[i]) * (audio.samples[i] - samples[i]);
        if (format != "opus") {
          // Written in steps of 1/32767 and read in steps of 1/32768, as libsndfile does both.
          ASSERT_NEAR(audio.samples[i], samples[i], 1.5 / 32768) << format << i;
        }
      }
      EXPECT_LT(error, power * 0.1) << format << " " << piece;
    }
  }
}

TEST(AudioStreams, SoundGoesOutBeforeItsEnd) {
  const std::vector<float> second = chirp(16000);
  for (const std::string format : {"wav", "flac", "opus"}) {
    AudioStream stream(format, 16000);
    EXPECT_GT(stream.push(second).size(), 1000u) << format;
  }
  EXPECT_THROW(AudioStream("mp3", 16000), Error);
  EXPECT_THROW(AudioStream("opus", 22050), Error);
}

TEST(AudioStreams, WaveOfAKnownLength) {
  const std::string bytes = wave_bytes(std::vector<float>{0, 2, -2, 0.5f}, 8000);
  ASSERT_EQ(bytes.size(), 52u);
  EXPECT_EQ(bytes.substr(36, 4), "data");
  const auto sample = [&](size_t i) {
    return static_cast<int16_t>(static_cast<unsigned char>(bytes[44 + 2 * i]) |
                                static_cast<unsigned char>(bytes[45 + 2 * i]) << 8);
  };
  EXPECT_EQ(sample(0), 0);
  EXPECT_EQ(sample(1), 32767);
  EXPECT_EQ(sample(2), -32767);
  EXPECT_EQ(sample(3), 16384);
}

}  // namespace audio_stream_test
}  // namespace melete
