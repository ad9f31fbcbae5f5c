// Broken manifests and transcripts end in an Error or in entries that make sense; the sanitizers watch.
#include <gtest/gtest.h>

#include "../base/temporary_folder.h"
#include "core/base/error.h"
#include "data/base/manifest.h"
#include "io/base/audio_file.h"
#include "mutate.h"

namespace melete {
namespace manifest_hostile {

using testing::mutate;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(HostileManifest, MutationsGiveAnErrorOrSaneEntries) {
  const TemporaryFolder folder;
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < 8; ++i)
    entries.push_back({folder / ("x" + std::to_string(i) + ".wav"), 1.5 * i, 24000 * i, 16000, 1 + i % 2,
                       i % 3 == 0 ? "" : "words with \"quotes\", ünïcode and \\ signs",
                       i % 2 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"bell", "slow"}});
  const std::string path = folder / "m.jsonl";
  write_manifest(path, entries);
  const std::string good = read_bytes(path);
  int errors = 0;
  for (uint64_t variant = 0; variant < 1500; ++variant) {
    write_bytes(path, mutate(good, variant));
    try {
      for (const ManifestEntry& entry : read_manifest(path)) {
        EXPECT_FALSE(entry.path.empty());
        EXPECT_GE(entry.frames, 0);
        EXPECT_GE(entry.rate_hz, 1);
        EXPECT_GE(entry.channels, 1);
        EXPECT_LE(entry.channels, 64);
        EXPECT_GE(entry.duration_seconds, 0);
      }
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path + ":"), std::string::npos) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(errors, 300);
}

TEST(HostileManifest, MutatedTranscriptsNeverStopAnIndex) {
  const TemporaryFolder folder;
  write_audio(folder / "wavs/LJ001-0001.wav", std::vector<float>(800, 0.1f), 8000);
  write_audio(folder / "84-1-0000.wav", std::vector<float>(800, 0.1f), 8000);
  const std::string table = "LJ001-0001|In 1455, é|In fourteen fifty-five\nLJ001-0002|a|b\n";
  const std::string transcript = "84-1-0000 GO DO YOU HEAR\n84-1-0001 ☃ SNOW\n";
  for (uint64_t variant = 0; variant < 400; ++variant) {
    write_bytes(folder / "metadata.csv", mutate(table, variant));
    write_bytes(folder / "84-1.trans.txt", mutate(transcript, variant));
    const FolderIndex index = index_folder(folder.path(), {}, 1);
    ASSERT_EQ(index.entries.size() + index.skipped.size(), 2u);
    // Whatever text was found can be written down and read back.
    write_manifest(folder / "m.jsonl", index.entries);
    ASSERT_EQ(read_manifest(folder / "m.jsonl"), index.entries) << variant;
  }
}

}  // namespace manifest_hostile
}  // namespace melete
