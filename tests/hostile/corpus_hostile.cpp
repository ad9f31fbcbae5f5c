// Readers of token files, torch.save, pickle and safetensors on the files of tests/corpus and on thousands of
// mutations of them, under sanitizers, and with an eye on how much memory they take.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "../fuzz/targets.h"
#include "core/base/random.h"
#include "io/base/token_file.h"
#include "io/base/zip_archive.h"
#include "mutate.h"

// Of AddressSanitizer; g++ has the functions without their header.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* at);
}

namespace melete {
namespace corpus_hostile {

namespace fs = std::filesystem;

std::atomic<int64_t> live{0}, peak{0};

void on_malloc(const volatile void*, size_t size) {
  const int64_t now = live.fetch_add(static_cast<int64_t>(size)) + static_cast<int64_t>(size);
  if (now > peak.load()) peak = now;
}
void on_free(const volatile void* at) {
  if (at) live.fetch_sub(static_cast<int64_t>(__sanitizer_get_allocated_size(at)));
}

std::vector<std::pair<std::string, std::string>> corpus(const std::string& name) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : fs::directory_iterator(fs::path(MELETE_SOURCE_DIR) / "tests/corpus" / name)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    files.emplace_back(entry.path().filename().string(),
                       std::string(std::istreambuf_iterator<char>(stream), {}));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A checksum would hide everything behind it from mutations: half of them get a right one again.
std::string repaired(const std::string& target, std::string bytes) {
  if (target == "tokens" && bytes.size() > 16) {
    Checksum sum;
    sum.add(std::as_bytes(std::span(bytes).first(bytes.size() - 16)));
    const std::string hex = sum.hex();
    for (size_t i = 0; i < 16; ++i)
      bytes[bytes.size() - 16 + i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  if (target == "torch") {
    // Every stored member whose local header is sound gets its checksum in the directory.
    for (size_t at = bytes.find("PK\x01\x02"); at != std::string::npos && at + 46 <= bytes.size();
         at = bytes.find("PK\x01\x02", at + 4)) {
      const auto number = [&](size_t place) {
        uint32_t value;
        std::memcpy(&value, bytes.data() + place, 4);
        return value;
      };
      const size_t size = number(at + 24), offset = number(at + 42);
      if (offset + 30 > bytes.size()) continue;
      const size_t data = offset + 30 + (number(offset + 26) & 0xffff) + (number(offset + 26) >> 16);
      if (data > bytes.size() || size > bytes.size() - data) continue;
      const uint32_t sum = crc32(std::as_bytes(std::span(bytes).subspan(data, size)));
      std::memcpy(bytes.data() + at + 16, &sum, 4);
    }
  }
  return bytes;
}

class Corpus : public ::testing::TestWithParam<fuzz::Target> {};

TEST_P(Corpus, IsReadOrRefusedWithinItsMemory) {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  ASSERT_GT(installed, 0);
  const fuzz::Target& target = GetParam();
  const auto files = corpus(target.name);
  ASSERT_GE(files.size(), 3u);
  int64_t accepted = 0, refused = 0;
  for (const auto& [name, good] : files) {
    EXPECT_EQ(target.run(std::as_bytes(std::span(good))), name.find("refused") == std::string::npos) << name;
    const uint64_t variants = std::clamp<uint64_t>(12'000'000 / (good.size() + 1000), 100, 6000);
    for (uint64_t variant = 0; variant < variants; ++variant) {
      std::string bytes = testing::mutate(good, variant);
      if (variant % 2) bytes = repaired(target.name, std::move(bytes));
      // An exact block, so that one byte too far is seen.
      const std::vector<std::byte> block(std::as_bytes(std::span(bytes)).begin(),
                                         std::as_bytes(std::span(bytes)).end());
      const int64_t before = live.load();
      peak = before;
      (target.run(block) ? accepted : refused) += 1;
      // One opcode of a byte makes a value of a few hundred; the rest is room for messages and tables.
      ASSERT_LT(peak.load() - before, 1024 * static_cast<int64_t>(block.size()) + (1 << 20))
          << name << " variant " << variant;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus, ::testing::ValuesIn(fuzz::targets()),
                         [](const auto& chosen) { return chosen.param.name; });

}  // namespace corpus_hostile
}  // namespace melete
