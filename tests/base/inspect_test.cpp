#include "data/base/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "temporary_folder.h"

namespace melete {
namespace inspect_test {

namespace fs = std::filesystem;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::vector<float> sine(double seconds, double gain, double frequency_hz = 997, int rate_hz = 48000) {
  std::vector<float> samples;
  for (int64_t i = 0; i < std::llround(seconds * rate_hz); ++i)
    samples.push_back(static_cast<float>(
        gain * std::sin(6.283185307179586 * frequency_hz * static_cast<double>(i) / rate_hz)));
  return samples;
}

TEST(Check, FindsEachProblemAndOnlyThose) {
  const TemporaryFolder folder;
  write_audio(folder / "good.wav", sine(1, 0.5), 48000);
  write_audio(folder / "full_scale.wav", sine(1, 1.0, 100), 48000);
  write_audio(folder / "full_scale.flac", sine(1, 1.0, 300), 48000);
  write_audio(folder / "clipped.flac", sine(1, 1.2, 300), 48000);
  write_audio(folder / "clipped.mp3", sine(1, 3.0, 300), 48000);
  write_audio(folder / "clipped.wav", sine(1, 3.0, 100), 48000);
  write_audio(folder / "silent.wav", std::vector<float>(48000), 48000);
  write_audio(folder / "nearly_silent.flac", sine(1, 0.0005), 48000);
  write_audio(folder / "short.wav", sine(0.05, 0.5), 48000);
  write_audio(folder / "empty.wav", std::vector<float>{}, 48000);
  write_bytes(folder / "zero.wav", "");
  write_bytes(folder / "noise.flac", "certainly not");
  write_audio(folder / "cut.flac", sine(2, 0.5), 48000);
  const std::string whole = read_bytes(folder / "cut.flac");
  write_bytes(folder / "cut.flac", whole.substr(0, whole.size() / 2));

  const CheckReport report = check_data(folder.path());
  std::map<std::string, Problem> found;
  for (const Finding& finding : report.findings)
    found[fs::path(finding.path).filename().string()] = finding.problem;
  // A sine at full scale touches the top once a period for a few samples; only flattened tops count as
  // clipping.
  found.erase("full_scale.wav");
  EXPECT_EQ(found, (std::map<std::string, Problem>{{"clipped.wav", Problem::clipped},
                                                   {"clipped.flac", Problem::clipped},
                                                   {"clipped.mp3", Problem::clipped},
                                                   {"silent.wav", Problem::silent},
                                                   {"nearly_silent.flac", Problem::silent},
                                                   {"short.wav", Problem::too_short},
                                                   {"empty.wav", Problem::empty},
                                                   {"zero.wav", Problem::empty},
                                                   {"noise.flac", Problem::unreadable},
                                                   {"cut.flac", Problem::unreadable}}));
  EXPECT_EQ(report.files, 13);
  const std::string table = report.table();
  for (const char* word : {"clipped.wav", "too short", "13 files", "unreadable"})
    EXPECT_NE(table.find(word), std::string::npos) << table;
  EXPECT_NE(report.table(2).find("more"), std::string::npos);
}

TEST(Check, ManifestThatNoLongerFitsIsNamed) {
  const TemporaryFolder folder;
  write_audio(folder / "a.wav", sine(1, 0.5), 48000);
  write_audio(folder / "b.wav", sine(1, 0.5), 48000);
  write_audio(folder / "c.wav", sine(1, 0.5), 48000);
  write_manifest(folder / "m.jsonl", load_entries(folder.path()));
  EXPECT_TRUE(check_data(folder / "m.jsonl").findings.empty());
  write_audio(folder / "b.wav", sine(2, 0.5), 48000);
  fs::remove(folder / "c.wav");
  const CheckReport report = check_data(folder / "m.jsonl");
  ASSERT_EQ(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].problem, Problem::changed);
  EXPECT_EQ(report.findings[1].problem, Problem::unreadable);
}

TEST(Stats, LoudnessOfAReferenceTone) {
  const TemporaryFolder folder;
  // EBU Tech 3341: a stereo 1 kHz sine at -23 dBFS measures -23 LUFS; one channel alone, 3 dB less.
  const auto left = sine(5, std::pow(10.0, -23.0 / 20.0), 1000);
  std::vector<float> stereo;
  for (const float sample : left) stereo.insert(stereo.end(), {sample, sample});
  write_audio(folder / "stereo.wav", stereo, 48000, 2);
  write_audio(folder / "mono.wav", left, 48000);
  write_audio(folder / "tiny.wav", sine(0.1, 0.5), 48000);
  write_bytes(folder / "mono.txt", "a tone");
  DataStats stats = data_stats(folder.path());
  EXPECT_EQ(stats.files, 3);
  EXPECT_EQ(stats.with_text, 1);
  EXPECT_NEAR(stats.total_seconds(), 10.1, 1e-9);
  ASSERT_EQ(stats.loudness_lufs.size(), 2u);
  std::sort(stats.loudness_lufs.begin(), stats.loudness_lufs.end());
  EXPECT_NEAR(stats.loudness_lufs[0], -26.0, 0.1);
  EXPECT_NEAR(stats.loudness_lufs[1], -23.0, 0.1);
  EXPECT_EQ(stats.channels, (std::map<int, int64_t>{{1, 2}, {2, 1}}));
  const std::string text = stats.render();
  for (const char* word : {"3 recordings", "48000 Hz", "LUFS", "█", "1 with text"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
}

// Sums the counts at the ends of the lines.
int64_t counted(const std::string& text) {
  int64_t total = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    total += std::stoll(text.substr(text.rfind(' ', end) + 1));
    begin = end + 1;
  }
  return total;
}

TEST(Histogram, CountsEveryValueOnce) {
  EXPECT_EQ(histogram({}, "s"), "");
  EXPECT_EQ(counted(histogram({4, 4, 4}, "s")), 3);
  EXPECT_EQ(counted(histogram({0}, "s")), 1);
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::exp(std::sin(i * 1.7) * 3) - 1);
  for (const int bins : {1, 3, 10, 25}) {
    const std::string text = histogram(values, "s", bins);
    EXPECT_EQ(counted(text), 1000);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), bins + 2);
  }
}

}  // namespace inspect_test
}  // namespace melete
