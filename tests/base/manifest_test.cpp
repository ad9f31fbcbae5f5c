#include "data/base/manifest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/audio_file.h"
#include "search_path.h"
#include "temporary_folder.h"

namespace melete {
namespace manifest_test {

namespace fs = std::filesystem;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

void write_tone(const std::string& path, int64_t frames = 1600, int rate_hz = 16000) {
  std::vector<float> samples;
  for (int64_t i = 0; i < frames; ++i) samples.push_back(0.3f * std::sin(0.1f * static_cast<float>(i)));
  write_audio(path, samples, rate_hz);
}

std::string refusal(const std::string& path) {
  try {
    read_manifest(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Manifest, RoundTripsWithPathsRelativeToItself) {
  const TemporaryFolder folder;
  const std::vector<ManifestEntry> entries = {
      {folder / "set/a.wav", 1.5, 24000, 16000, 1, "hello \"there\"\nsecond line, naïve ☃"},
      {folder / "set/deep/b c.flac", 0.1, 1600, 16000, 2, "", {"bell", "slow, \"soft\""}},
      {"/elsewhere/d.ogg", 12.25, 588000, 48000, 1, ""}};
  write_manifest(folder / "set/manifest.jsonl", entries);
  EXPECT_EQ(read_manifest(folder / "set/manifest.jsonl"), entries);
  EXPECT_EQ(read_bytes(folder / "set/manifest.jsonl").find(folder.path()), std::string::npos);

  // The folder moves, the manifest still holds.
  fs::rename(folder.path() + "/set", folder.path() + "/moved");
  const auto moved = read_manifest(folder / "moved/manifest.jsonl");
  EXPECT_EQ(moved[0].path, folder / "moved/a.wav");
  EXPECT_EQ(moved[2].path, "/elsewhere/d.ogg");
}

TEST(Manifest, AFoldersNameIsAClass) {
  EXPECT_EQ(class_by_folder("music/slow_bells/a.wav", "music/"), "slow bells");
  EXPECT_EQ(class_by_folder("music/deep/organ/a.wav", "music"), "organ");
  EXPECT_EQ(class_by_folder("music/a.wav", "music"), "");
  EXPECT_EQ(class_by_folder("./music/a.wav", "music/."), "");
}

TEST(Manifest, IndexFindsTextInThreeLayouts) {
  const TemporaryFolder folder;
  write_tone(folder / "plain/a.flac");
  write_bytes(folder / "plain/a.txt", "  a plain caption\r\n");
  write_tone(folder / "plain/silent_partner.wav");
  write_tone(folder / "lj/wavs/LJ001-0001.wav");
  write_tone(folder / "lj/wavs/LJ001-0002.wav");
  write_bytes(folder / "lj/metadata.csv", "LJ001-0001|In 1455|In fourteen fifty-five\nLJ001-0002|only one\n");
  write_tone(folder / "libri/84/121123/84-121123-0000.flac");
  write_bytes(folder / "libri/84/121123/84-121123.trans.txt", "84-121123-0000 GO DO YOU HEAR\nother WORDS\n");

  const FolderIndex index = index_folder(folder.path());
  EXPECT_TRUE(index.skipped.empty());
  std::map<std::string, std::string> texts;
  for (const ManifestEntry& entry : index.entries)
    texts[fs::path(entry.path).filename().string()] = entry.text;
  EXPECT_EQ(texts, (std::map<std::string, std::string>{{"a.flac", "a plain caption"},
                                                       {"silent_partner.wav", ""},
                                                       {"LJ001-0001.wav", "In fourteen fifty-five"},
                                                       {"LJ001-0002.wav", "only one"},
                                                       {"84-121123-0000.flac", "GO DO YOU HEAR"}}));
  EXPECT_EQ(index.entries[0].frames, 1600);
  EXPECT_DOUBLE_EQ(index.entries[0].duration_seconds, 0.1);
}

TEST(Manifest, IndexNamesWhatItSkips) {
  const TemporaryFolder folder;
  write_tone(folder / "good.wav");
  write_bytes(folder / "broken.flac", "no flac");
  write_bytes(folder / "empty.wav", "");
  write_bytes(folder / "phone.m4a", "....");
  write_bytes(folder / "notes.md", "not audio and not mentioned");
  write_bytes(folder / "._good.wav", "what macOS leaves behind");
  write_tone(folder / "latin.wav");
  write_bytes(folder / "latin.txt", "caf\xe9");
  fs::create_symlink(folder.path(), folder / "loop");
  fs::create_symlink("nowhere.wav", folder / "dangling.wav");

  const TemporaryFolder empty;
  const testing::SearchPath without_ffmpeg(empty.path());
  const FolderIndex index = index_folder(folder.path());
  ASSERT_EQ(index.entries.size(), 1u);
  ASSERT_EQ(index.skipped.size(), 5u);
  std::map<std::string, std::string> reasons;
  for (const SkippedFile& file : index.skipped)
    reasons[fs::path(file.path).filename().string()] = file.reason;
  EXPECT_NE(reasons["phone.m4a"].find("ffmpeg -i"), std::string::npos);
  EXPECT_NE(reasons["empty.wav"].find("empty"), std::string::npos);
  EXPECT_NE(reasons["latin.wav"].find("UTF-8"), std::string::npos);
  EXPECT_TRUE(reasons.contains("broken.flac"));
  EXPECT_TRUE(reasons.contains("dangling.wav"));
}

TEST(Manifest, IndexIsTheSameWithAnyNumberOfThreads) {
  const TemporaryFolder folder;
  for (int i = 0; i < 40; ++i) write_tone(folder / ("x" + std::to_string(i * 7 % 40) + ".wav"), 100 + i);
  int64_t last = 0, calls = 0;
  const FolderIndex one = index_folder(folder.path(), {}, 1);
  const FolderIndex four = index_folder(
      folder.path(),
      [&](int64_t done, int64_t total) {
        EXPECT_EQ(total, 40);
        EXPECT_EQ(done, last + 1);
        last = done;
        ++calls;
      },
      4);
  EXPECT_EQ(one.entries, four.entries);
  EXPECT_EQ(calls, 40);
  EXPECT_TRUE(std::is_sorted(one.entries.begin(), one.entries.end(),
                             [](const auto& a, const auto& b) { return a.path < b.path; }));
}

TEST(Manifest, LoadEntriesTakesBothAndRefusesNothing) {
  const TemporaryFolder folder;
  write_tone(folder / "data/a.wav");
  write_bytes(folder / "data/b.flac", "broken");
  std::vector<SkippedFile> skipped;
  const auto entries = load_entries(folder / "data", &skipped);
  EXPECT_EQ(entries.size(), 1u);
  EXPECT_EQ(skipped.size(), 1u);
  write_manifest(folder / "m.jsonl", entries);
  EXPECT_EQ(load_entries(folder / "m.jsonl"), entries);

  write_bytes(folder / "nothing.jsonl", "\n\n");
  EXPECT_THROW(load_entries(folder / "nothing.jsonl"), Error);
  fs::create_directories(folder.path() + "/hollow");
  EXPECT_THROW(load_entries(folder.path() + "/hollow"), Error);
  EXPECT_THROW(load_entries(folder.path() + "/missing"), Error);
  EXPECT_THROW(load_entries(folder / "data/a.wav"), Error);
}

TEST(Manifest, BrokenLinesAreRefusedByNumber) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.jsonl";
  const std::string good =
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 16000, "rate_hz": 16000, "channels": 1, "text": "x"})";
  const std::vector<std::string> bad = {
      "{",
      "[]",
      "null",
      "17",
      "\xff\xfe",
      R"({"path": "a.wav"})",
      R"({"path": 3, "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a\u0000b.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": "1", "frames": 1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": -1, "frames": 1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": 1e999, "frames": 1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1.5, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 99999999999999999999, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": -1, "rate_hz": 16000, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 0, "channels": 1})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1000})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1, "text": 5})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1, "tags": "x"})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1, "tags": [5]})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1, "tags": [""]})",
      R"({"path": "a.wav", "duration_seconds": 1, "frames": 1, "rate_hz": 16000, "channels": 1, "tags": ["a\nb"]})",
      std::string(100000, '['),
      R"({"path": ")" + std::string(2 << 20, 'a') + "\"}",
      good + good,
  };
  for (const std::string& line : bad) {
    write_bytes(path, good + "\n\n" + line + "\n" + good + "\n");
    const std::string message = refusal(path);
    EXPECT_NE(message.find(path + ":3:"), std::string::npos)
        << line.substr(0, 120) << " -> " << message.substr(0, 200);
    EXPECT_LT(message.size(), 1000u);
  }
  write_bytes(path, good + "\r\n" + good);  // without a last newline, with Windows ends
  EXPECT_EQ(read_manifest(path).size(), 2u);
  EXPECT_THROW(read_manifest(folder.path()), Error);
}

TEST(Manifest, ParallelWorkPassesTheFirstErrorOn) {
  std::atomic<int> calls{0};
  EXPECT_THROW(for_each_parallel(
                   1000,
                   [&](int64_t i) {
                     ++calls;
                     if (i == 5) fail("five");
                     std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others have work to do
                   },
                   {}, 3),
               Error);
  EXPECT_LT(calls, 1000);
  for_each_parallel(0, [](int64_t) { FAIL(); });
}

}  // namespace manifest_test
}  // namespace melete
