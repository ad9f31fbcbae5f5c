#include "io/base/audio_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <functional>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"
#include "search_path.h"
#include "temporary_folder.h"

namespace melete {
namespace audio_file_test {

using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::vector<float> tone(int64_t frames, int channels, int rate_hz) {
  std::vector<float> samples;
  Rng rng(7);
  for (int64_t i = 0; i < frames; ++i)
    for (int c = 0; c < channels; ++c)
      samples.push_back(static_cast<float>(
          0.4 * std::sin(6.28318530718 * 220.0 * (c + 1) * static_cast<double>(i) / rate_hz) +
          0.05 * rng.uniform(-1, 1)));
  return samples;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, static_cast<double>(std::abs(a[i] - b[i])));
  return largest;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AudioFile, RoundTripsLosslessFormats) {
  const TemporaryFolder folder;
  for (const int channels : {1, 2, 6}) {
    const auto samples = tone(5000, channels, 24000);
    write_audio(folder / "a.wav", samples, 24000, channels);
    const Audio wav = read_audio(folder / "a.wav");
    EXPECT_EQ(wav.rate_hz, 24000);
    EXPECT_EQ(wav.channels, channels);
    EXPECT_EQ(wav.samples, samples);
    write_audio(folder / "a.flac", samples, 24000, channels);
    EXPECT_LT(largest_difference(read_audio(folder / "a.flac").samples, samples), 2.5e-7);
  }
}

TEST(AudioFile, ProbeSaysWhatWasWritten) {
  const TemporaryFolder folder;
  const auto samples = tone(48000, 2, 48000);
  for (const std::string name : {"a.wav", "a.flac", "a.ogg", "a.opus", "a.mp3"}) {
    write_audio(folder / name, samples, 48000, 2);
    const AudioInfo info = probe_audio(folder / name);
    EXPECT_EQ(info.rate_hz, 48000) << name;
    EXPECT_EQ(info.channels, 2) << name;
    EXPECT_NEAR(static_cast<double>(info.frames), 48000, name == "a.mp3" ? 2400 : 0) << name;
    EXPECT_NEAR(info.seconds(), 1.0, 0.05) << name;
  }
  EXPECT_EQ(probe_audio(folder / "a.flac").format, "FLAC/24-bit");
  EXPECT_EQ(probe_audio(folder / "a.opus").format, "OGG/Opus");
}

TEST(AudioFile, SegmentEqualsSliceOfWhole) {
  const TemporaryFolder folder;
  const auto samples = tone(60000, 2, 48000);
  Rng rng(3);
  for (const std::string name : {"a.wav", "a.flac", "a.ogg", "a.opus", "a.mp3"}) {
    write_audio(folder / name, samples, 48000, 2);
    const Audio whole = read_audio(folder / name);
    // Opus and MP3 decoders carry state across a seek, so theirs agree closely, not in every bit.
    const double tolerance = name == "a.opus" ? 0.05 : name == "a.mp3" ? 1e-4 : name == "a.ogg" ? 1e-6 : 0.0;
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t begin = rng.integer(0, whole.frames());
      const int64_t count = rng.integer(1, whole.frames() - begin + 1);
      const Audio part = read_audio(folder / name, begin, count);
      ASSERT_EQ(part.frames(), count) << name;
      const auto slice =
          std::span(whole.samples).subspan(static_cast<size_t>(2 * begin), static_cast<size_t>(2 * count));
      EXPECT_LE(largest_difference(part.samples, slice), tolerance) << name << " from " << begin;
    }
  }
}

TEST(AudioFile, SegmentsStopAtTheEnd) {
  const TemporaryFolder folder;
  write_audio(folder / "a.flac", tone(1000, 1, 16000), 16000);
  EXPECT_EQ(read_audio(folder / "a.flac", 900, 500).frames(), 100);
  EXPECT_EQ(read_audio(folder / "a.flac", 1000).frames(), 0);
  EXPECT_EQ(read_audio(folder / "a.flac", 10, 0).frames(), 0);
  EXPECT_THROW(read_audio(folder / "a.flac", 1001), Error);
  EXPECT_THROW(read_audio(folder / "a.flac", -1), Error);
  EXPECT_THROW(read_audio(folder / "a.flac", 0, -2), Error);
}

TEST(AudioFile, DownmixIsTheMean) {
  const Audio audio{{1.0f, 0.0f, 0.5f, 0.25f, 0.5f, -0.75f}, 8000, 3};
  EXPECT_EQ(downmix(audio), (std::vector<float>{0.5f, 0.0f}));
}

TEST(AudioFile, WritingClampsAndRefuses) {
  const TemporaryFolder folder;
  write_audio(folder / "a.wav", std::vector<float>{3.0f, -2.0f, 0.5f}, 8000);
  EXPECT_EQ(read_audio(folder / "a.wav").samples, (std::vector<float>{1.0f, -1.0f, 0.5f}));
  write_audio(folder / "a.flac", std::vector<float>{3.0f, -2.0f, 0.5f}, 8000);
  EXPECT_LT(largest_difference(read_audio(folder / "a.flac").samples, std::vector<float>{1, -1, 0.5f}), 1e-6);

  const std::vector<float> broken = {0.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(write_audio(folder / "a.wav", broken, 8000), Error);
  EXPECT_EQ(read_audio(folder / "a.wav").frames(), 3) << "a failed write must leave what was there";
  EXPECT_THROW(write_audio(folder / "a.xyz", broken, 8000), Error);
  EXPECT_THROW(write_audio(folder / "b.wav", std::vector<float>(3), 8000, 2), Error);
  EXPECT_THROW(write_audio(folder / "b.opus", std::vector<float>(100), 44100), Error);
  EXPECT_THROW(write_audio(folder.path() + "/missing/b.wav", std::vector<float>(3), 8000), Error);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files += entry.exists();
  EXPECT_EQ(files, 2u) << "temporaries must not be left";
}

TEST(AudioFile, WritesTheSameBytesTwice) {
  const TemporaryFolder folder;
  const auto samples = tone(9000, 1, 24000);
  for (const std::string name : {"a.wav", "a.flac"}) {
    write_audio(folder / name, samples, 24000);
    const std::string first = read_bytes(folder / name);
    write_audio(folder / name, samples, 24000);
    EXPECT_EQ(read_bytes(folder / name), first) << name;
  }
}

// A canonical 44-byte header with fields of our choice.
std::string wav_header(uint32_t data_bytes, uint16_t channels, uint32_t rate_hz, uint16_t format = 1,
                       uint16_t bits = 16) {
  std::string out;
  const auto number = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  };
  out += "RIFF";
  number(36 + data_bytes, 4);
  out += "WAVEfmt ";
  number(16, 4);
  number(format, 2);
  number(channels, 2);
  number(rate_hz, 4);
  number(rate_hz * channels * bits / 8, 4);
  number(static_cast<uint32_t>(channels * bits / 8), 2);
  number(bits, 2);
  out += "data";
  number(data_bytes, 4);
  return out;
}

TEST(AudioFile, HostileHeadersAreRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder / "bad.wav";
  const auto refused = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    const std::string message = message_of([&] { read_audio(path); });
    EXPECT_NE(message.find(path), std::string::npos) << message;
  };
  refused("");
  refused("RIFF");
  refused("this is no audio at all, only words");
  refused(wav_header(400, 0, 16000) + std::string(400, '\1'));
  refused(wav_header(4000, 1000, 16000) + std::string(4000, '\1'));
  refused(wav_header(400, 1, 0) + std::string(400, '\1'));
  refused(wav_header(400, 1, 0x7fffffff) + std::string(400, '\1'));
  // Floats that are not numbers.
  refused(wav_header(16, 1, 16000, 3, 32) + std::string(16, '\xff'));
  refused("fLaC" + std::string(60, '\xff'));
  EXPECT_NE(message_of([&] { read_audio(folder / "none.wav"); }).find("none.wav"), std::string::npos);
  EXPECT_NE(message_of([&] { read_audio(folder.path()); }).find("regular"), std::string::npos);
}

TEST(AudioFile, AbsurdLengthsAllocateNothing) {
  const TemporaryFolder folder;
  // A WAV that claims 4 GB and holds 200 bytes: whatever is decided, it is decided without the 4 GB.
  write_bytes(folder / "a.wav", wav_header(0xfffffff0u, 1, 16000) + std::string(200, '\1'));
  try {
    EXPECT_LE(read_audio(folder / "a.wav").frames(), 100);
  } catch (const Error&) {
  }
  // A FLAC whose STREAMINFO claims 2^36 - 1 samples.
  write_audio(folder / "b.flac", tone(2000, 1, 16000), 16000);
  std::string bytes = read_bytes(folder / "b.flac");
  bytes[21] = static_cast<char>(bytes[21] | 0x0f);
  for (size_t i = 22; i < 26; ++i) bytes[i] = '\xff';
  write_bytes(folder / "b.flac", bytes);
  EXPECT_THROW(read_audio(folder / "b.flac"), Error);
  EXPECT_THROW(probe_audio(folder / "b.flac"), Error);
}

TEST(AudioFile, FlacWithoutALengthIsCounted) {
  const TemporaryFolder folder;
  write_audio(folder / "a.flac", tone(20000, 1, 16000), 16000);
  const Audio whole = read_audio(folder / "a.flac");
  std::string bytes = read_bytes(folder / "a.flac");
  // What an encoder leaves that writes to a pipe: total samples 0.
  bytes[21] = static_cast<char>(bytes[21] & 0xf0);
  for (size_t i = 22; i < 26; ++i) bytes[i] = 0;
  write_bytes(folder / "a.flac", bytes);
  EXPECT_EQ(probe_audio(folder / "a.flac").frames, 20000);
  EXPECT_EQ(read_audio(folder / "a.flac").samples, whole.samples);
  const Audio part = read_audio(folder / "a.flac", 5000, 1000);
  ASSERT_EQ(part.frames(), 1000);
  EXPECT_TRUE(std::equal(part.samples.begin(), part.samples.end(), whole.samples.begin() + 5000));
}

TEST(AudioFile, CutOffFlacIsAnError) {
  const TemporaryFolder folder;
  write_audio(folder / "a.flac", tone(50000, 1, 16000), 16000);
  const std::string bytes = read_bytes(folder / "a.flac");
  write_bytes(folder / "a.flac", bytes.substr(0, bytes.size() / 2));
  EXPECT_NE(message_of([&] { read_audio(folder / "a.flac"); }).find("cut off"), std::string::npos);
  EXPECT_EQ(read_audio(folder / "a.flac", 0, 8000).frames(), 8000) << "the part that is there can be read";
}

TEST(AudioFile, ExtensionsSayWhoReadsThem) {
  const TemporaryFolder empty;
  const testing::SearchPath without_ffmpeg(empty.path());
  for (const char* name : {"a.wav", "b.FLAC", "c/d.mp3", "e.ogg", "f.opus", "g.aiff"}) {
    EXPECT_TRUE(is_audio_extension(name)) << name;
    EXPECT_FALSE(needs_ffmpeg(name)) << name;
  }
  for (const char* name : {"a.m4a", "b.AAC", "c.webm", "d.wma", "e.mp4"}) {
    EXPECT_FALSE(is_audio_extension(name)) << name;
    EXPECT_TRUE(needs_ffmpeg(name)) << name;
  }
  EXPECT_FALSE(is_audio_extension("wav"));
  EXPECT_FALSE(is_audio_extension("notes.txt"));
  EXPECT_EQ(ffmpeg_command("it's.m4a"), "ffmpeg -i 'it'\\''s.m4a' 'it'\\''s.flac'");
}

TEST(AudioFile, AMissingFileIsSaidToBeMissing) {
  errno = 0;
  try {
    AudioReader reader("/nowhere/a.wav");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
}

}  // namespace audio_file_test
}  // namespace melete
