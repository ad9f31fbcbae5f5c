// Mutated safetensors and PNG files, read under sanitizers: each must be read or refused with an Error,
// nothing else.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/png.h"
#include "io/base/safetensors.h"

namespace melete {
namespace safetensors_hostile {

std::string with_header(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

const std::string kHeader =
    R"({"__metadata__":{"step":"12","text":"a\u00e9\n"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("h":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"e":{"dtype":"I64","shape":[0,7],"data_offsets":[32,32]},)"
    R"("b":{"dtype":"BOOL","shape":[],"data_offsets":[32,33]}})";

// Numbers and pieces at which such readers have broken.
const char* const kPieces[] = {"0",
                               "-1",
                               "18446744073709551615",
                               "9223372036854775807",
                               "9223372036854775808",
                               "1e400",
                               "{",
                               "}",
                               "[",
                               "]",
                               "\"",
                               "\\u0000",
                               "F8",
                               ":",
                               ",",
                               "null",
                               "\xff",
                               "__metadata__",
                               "[0",
                               "4294967296"};

std::string mutate(std::string file, Rng& rng) {
  const int64_t changes = rng.integer(1, 6);
  for (int64_t i = 0; i < changes && !file.empty(); ++i) {
    const size_t at = static_cast<size_t>(rng.integer(0, static_cast<int64_t>(file.size())));
    switch (rng.integer(0, 7)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ (1 << rng.integer(0, 8)));
        break;
      case 1:
        file[at] = static_cast<char>(rng.next());
        break;
      case 2:
        file.resize(at);
        break;
      case 3:
        file.insert(at, kPieces[rng.integer(0, std::size(kPieces))]);
        break;
      case 4:
        file.erase(at, static_cast<size_t>(rng.integer(1, 20)));
        break;
      case 5:
        file.insert(at, file.substr(at / 2, static_cast<size_t>(rng.integer(1, 60))));
        break;
      default: {
        const std::string piece = kPieces[rng.integer(0, std::size(kPieces))];
        file.replace(at, piece.size(), piece);
      }
    }
  }
  return file;
}

TEST(HostileSafetensors, MutationsAreReadOrRefused) {
  constexpr int kCount = 20000;
  Rng rng(random_key(20240607, "hostile safetensors"));
  const std::string data(33, '\x3f');
  int read = 0, refused = 0;
  for (int i = 0; i < kCount; ++i) {
    // Half of them keep a length field that fits, so that the mutation reaches the header's text.
    std::string file = rng.uniform() < 0.5
                           ? mutate(with_header(kHeader, data), rng)
                           : with_header(mutate(kHeader, rng), rng.uniform() < 0.8 ? data : "");
    if (rng.uniform() < 0.05 && file.size() >= 8) {
      const uint64_t length = rng.next() >> rng.integer(0, 64);
      std::memcpy(file.data(), &length, 8);
    }
    std::vector<std::byte> exact(file.size());  // its own allocation: one byte too far is seen
    if (!file.empty()) std::memcpy(exact.data(), file.data(), file.size());
    std::vector<TensorBytes> tensors;
    TextMap metadata;
    try {
      parse_safetensors(exact, "hostile", tensors, metadata);
      ++read;
      size_t total = 0;
      volatile unsigned sum = 0;
      for (const TensorBytes& tensor : tensors) {
        size_t needed = byte_size(tensor.dtype);
        for (const int64_t size : tensor.shape) needed *= static_cast<size_t>(size);
        ASSERT_EQ(needed, tensor.bytes.size()) << "file " << i;
        for (const std::byte b : tensor.bytes) sum = sum + static_cast<unsigned>(b);
        total += tensor.bytes.size();
      }
      ASSERT_LE(total, exact.size()) << "file " << i;
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(std::strchr(error.what(), '\n'), nullptr) << error.what();
      ASSERT_LT(std::strlen(error.what()), 500u) << error.what();
    }
  }
  // A generator that never makes a file that reads, or never one that does not, tests nothing.
  EXPECT_GT(read, 20);
  EXPECT_GT(refused, kCount / 2);
}

TEST(HostilePng, MutationsAreReadOrRefused) {
  Image picture(23, 17);
  Rng rng(random_key(20240607, "hostile png"));
  for (uint8_t& value : picture.rgb) value = static_cast<uint8_t>(rng.integer(0, 4));
  const std::string good = encode_png(picture);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    try {
      const Image image = decode_png(mutate(good, rng), "hostile");
      ASSERT_EQ(image.rgb.size(), static_cast<size_t>(image.width) * static_cast<size_t>(image.height) * 3);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace safetensors_hostile
}  // namespace melete
