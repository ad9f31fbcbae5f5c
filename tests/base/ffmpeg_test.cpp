// Sound through ffmpeg: with a program that only pretends, so that every word it is given can be seen, and
// with the real one where it is installed.
#include "io/base/ffmpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>

#include "core/base/error.h"
#include "data/base/inspect.h"
#include "data/base/manifest.h"
#include "io/base/audio_file.h"
#include "search_path.h"
#include "temporary_folder.h"

namespace melete {
namespace ffmpeg_test {

namespace fs = std::filesystem;
using namespace testing;
using ::testing::HasSubstr;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

// As ffmpeg writes it into a pipe: the header does not know the length.
std::string au_file(const std::vector<float>& samples, uint32_t rate_hz, uint32_t channels) {
  std::string bytes = ".snd" + big_endian(24) + big_endian(0xffffffff) + big_endian(6) + big_endian(rate_hz) +
                      big_endian(channels);
  for (const float sample : samples) bytes += big_endian(std::bit_cast<uint32_t>(sample));
  return bytes;
}

std::vector<float> ramp(int64_t samples) {
  std::vector<float> values;
  for (int64_t i = 0; i < samples; ++i) values.push_back(static_cast<float>(i % 1000) / 2000 - 0.25f);
  return values;
}

// An `ffmpeg` in a folder of its own that runs `script`.
class Pretended {
 public:
  explicit Pretended(const std::string& script) : path_(make(folder_, script) + ":/usr/bin:/bin") {}
  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  static std::string make(const TemporaryFolder& folder, const std::string& script) {
    const std::string program = folder / "bin/ffmpeg";
    write_bytes(program, "#!/bin/sh\n" + script + "\n");
    fs::permissions(program, fs::perms::owner_all);
    return folder.path() + "/bin";
  }
  TemporaryFolder folder_;
  SearchPath path_;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Ffmpeg, SoundComesThroughTheProgram) {
  TemporaryFolder folder;
  const std::vector<float> samples = ramp(2 * 3000);
  write_bytes(folder / "sound.au", au_file(samples, 44100, 2));
  const Pretended ffmpeg("cat '" + folder.path() + "/sound.au'");
  write_bytes(folder / "talk.m4a", "whatever");
  const AudioInfo info = probe_audio(folder / "talk.m4a");
  EXPECT_EQ(info.frames, 3000);
  EXPECT_EQ(info.rate_hz, 44100);
  EXPECT_EQ(info.channels, 2);
  EXPECT_EQ(info.format, "m4a through ffmpeg");
  EXPECT_EQ(read_audio(folder / "talk.m4a").samples, samples);
  const Audio part = read_audio(folder / "talk.m4a", 1000, 500);
  EXPECT_EQ(part.samples, std::vector<float>(samples.begin() + 2000, samples.begin() + 3000));
}

TEST(Ffmpeg, AFileNameIsOnlyAFileName) {
  TemporaryFolder folder;
  write_bytes(folder / "sound.au", au_file(ramp(100), 16000, 1));
  const Pretended ffmpeg("printf '%s\\n' \"$@\" > '" + folder.path() + "/words'; cat '" + folder.path() +
                         "/sound.au'");
  const std::string before = fs::current_path().string();
  for (const std::string name : {"with spaces.webm", "-y.m4a", "$(touch owned).mp4", "`touch owned`;a.mkv",
                                 "http:--x.g722", "quote\"'s.aac", "line\nbreak.wma"}) {
    write_bytes(folder / name, "x");
    fs::current_path(folder.path());
    EXPECT_EQ(probe_audio(name).frames, 100) << name;
    fs::current_path(before);
    const std::string words = read_bytes(folder / "words");
    EXPECT_THAT(words, HasSubstr("\n-i\nfile:" + folder.path() + "/" + name + "\n-map\n"));
    EXPECT_THAT(words, HasSubstr("-nostdin"));
    EXPECT_THAT(words, HasSubstr("-protocol_whitelist\nfile,pipe\n"));
    EXPECT_FALSE(fs::exists(folder / "owned"));
  }
}

TEST(Ffmpeg, TimeAndSizeAreBounded) {
  TemporaryFolder folder;
  write_bytes(folder / "a.m4a", "x");
  const auto begin = std::chrono::steady_clock::now();
  {
    const Pretended ffmpeg("exec sleep 100");
    EXPECT_THAT(message_of([&] {
                  decode_with_ffmpeg(folder / "a.m4a", {0.2, 1000});
                }),
                HasSubstr("took more than 0.2 s"));
  }
  {
    const Pretended ffmpeg("exec cat /dev/zero");
    EXPECT_THAT(message_of([&] {
                  decode_with_ffmpeg(folder / "a.m4a", {60, 100000});
                }),
                HasSubstr("more than 100000 bytes"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
}

TEST(Ffmpeg, SaysWhatWentWrong) {
  TemporaryFolder folder;
  write_bytes(folder / "a.m4a", "x");
  {
    const Pretended ffmpeg("echo first >&2; echo 'moov atom not found' >&2; exit 1");
    EXPECT_THAT(message_of([&] { read_audio(folder / "a.m4a"); }), HasSubstr("a.m4a: moov atom not found"));
  }
  {
    const Pretended ffmpeg("exit 0");
    EXPECT_THAT(message_of([&] { read_audio(folder / "a.m4a"); }), HasSubstr("gave no sound"));
  }
  {
    const Pretended ffmpeg("echo no sound file");
    EXPECT_THAT(message_of([&] { read_audio(folder / "a.m4a"); }), HasSubstr("a.m4a"));
  }
  const SearchPath nothing(folder.path());
  EXPECT_EQ(find_ffmpeg(), "");
  EXPECT_THAT(message_of([&] { read_audio(folder / "a.m4a"); }), HasSubstr("apt install ffmpeg"));
  EXPECT_FALSE(is_audio_extension("a.m4a"));
}

TEST(Ffmpeg, IndexAndCheckSeeTheseFiles) {
  TemporaryFolder folder;
  write_bytes(folder / "sound.au", au_file(ramp(16000), 16000, 1));
  const Pretended ffmpeg("cat '" + folder.path() + "/sound.au'");
  write_bytes(folder / "in/film.mp4", "x");
  write_bytes(folder / "in/phone.g722", "x");
  write_audio(folder / "in/plain.wav", ramp(8000), 16000);
  const FolderIndex index = index_folder(folder.path() + "/in");
  EXPECT_TRUE(index.skipped.empty());
  ASSERT_EQ(index.entries.size(), 3u);
  EXPECT_EQ(index.entries[0].frames, 16000);
  EXPECT_EQ(index.entries[1].frames, 16000);
  EXPECT_TRUE(is_audio_extension("a.webm"));
}

TEST(Ffmpeg, TheRealProgram) {
  const std::string program = find_ffmpeg();
  if (program.empty()) GTEST_SKIP() << "ffmpeg is not installed: only a pretended one was tried";
  TemporaryFolder folder;
  std::vector<float> tone;
  for (int i = 0; i < 32000; ++i) tone.push_back(static_cast<float>(0.4 * std::sin(0.05 * i)));
  write_audio(folder / "tone.wav", tone, 16000);
  for (const std::string name : {"-lossless copy.mka", "speech.m4a", "speech.webm", "phone.g722"}) {
    const std::string codec = name.ends_with(".mka") ? "-c:a flac " : "";
    const std::string make = program + " -v error -y -i '" + folder.path() + "/tone.wav' " + codec + "'" +
                             folder.path() + "/" + name + "'";
    ASSERT_EQ(std::system(make.c_str()), 0) << make;
    const Audio audio = read_audio(folder / name);
    EXPECT_NEAR(static_cast<double>(audio.frames()) / audio.rate_hz, 2, 0.1) << name;
    double energy = 0;
    for (const float sample : audio.samples) energy += sample * sample;
    EXPECT_NEAR(energy / static_cast<double>(audio.samples.size()), 0.08, 0.01) << name;
    if (name.ends_with(".mka")) {
      ASSERT_EQ(audio.frames(), 32000);
      for (size_t i = 0; i < tone.size(); ++i) ASSERT_NEAR(audio.samples[i], tone[i], 1e-4) << i;
    }
  }
  write_bytes(folder / "broken.m4a", std::string(5000, 'x'));
  EXPECT_THAT(message_of([&] { read_audio(folder / "broken.m4a"); }), HasSubstr("ffmpeg cannot read"));
}

}  // namespace ffmpeg_test
}  // namespace melete
