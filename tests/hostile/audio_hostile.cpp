// Broken audio files end in an Error or in sane samples; the sanitizers watch.
#include <gtest/gtest.h>

#include <cmath>

#include "../base/temporary_folder.h"
#include "core/base/error.h"
#include "data/base/inspect.h"
#include "io/base/audio_file.h"
#include "mutate.h"

// libsndfile forgets to free libvorbis' state when an ogg file turns out to be broken; that leak is not ours.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:vorbis_info_init\n";
}

namespace melete {
namespace audio_hostile {

using testing::mutate;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

class HostileAudio : public ::testing::TestWithParam<const char*> {};

TEST_P(HostileAudio, MutationsGiveAnErrorOrSaneSamples) {
  const TemporaryFolder folder;
  const std::string name = std::string("x.") + GetParam();
  std::vector<float> samples;
  Rng rng(1);
  for (int i = 0; i < 12000; ++i)
    samples.push_back(static_cast<float>(0.3 * std::sin(i * 0.05) + 0.1 * rng.uniform(-1, 1)));
  write_audio(folder / name, samples, 24000, 2);
  const std::string good = read_bytes(folder / name);

  int errors = 0, reads = 0;
  for (uint64_t variant = 0; variant < 300; ++variant) {
    const std::string bytes = mutate(good, variant);
    write_bytes(folder / name, bytes);
    try {
      const AudioInfo info = probe_audio(folder / name);
      EXPECT_GE(info.frames, 0);
      EXPECT_GE(info.channels, 1);
      EXPECT_GE(info.rate_hz, 1);
      const Audio part = read_audio(folder / name, info.frames / 2, 1000);
      EXPECT_LE(part.frames(), 1000);
      const Audio audio = read_audio(folder / name);
      // Samples come from bytes that are there, whatever the header says.
      EXPECT_LE(audio.samples.size(), bytes.size() * 8192 * 64) << variant;
      for (const float sample : audio.samples) ASSERT_TRUE(std::isfinite(sample)) << variant;
      EXPECT_EQ(downmix(audio).size(), static_cast<size_t>(audio.frames()));
      ++reads;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(folder.path()), std::string::npos) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(errors, 20);
  EXPECT_EQ(errors + reads, 300);
}

TEST_P(HostileAudio, EveryTruncationEndsWell) {
  const TemporaryFolder folder;
  const std::string name = std::string("x.") + GetParam();
  std::vector<float> samples;
  for (int i = 0; i < 4000; ++i) samples.push_back(static_cast<float>(0.3 * std::sin(i * 0.05)));
  write_audio(folder / name, samples, 24000);
  const std::string good = read_bytes(folder / name);
  for (size_t size = 0; size < good.size(); size += size < 300 ? 3 : 97) {
    write_bytes(folder / name, good.substr(0, size));
    try {
      EXPECT_LE(read_audio(folder / name).frames(), 8000) << size;
    } catch (const Error&) {
    }
  }
  EXPECT_NO_THROW(check_data(folder.path()));
}

INSTANTIATE_TEST_SUITE_P(Formats, HostileAudio, ::testing::Values("wav", "flac", "ogg", "opus", "mp3"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace audio_hostile
}  // namespace melete
