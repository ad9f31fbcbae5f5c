#include "io/base/safetensors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/atomic_file.h"
#include "io/base/checksum.h"

namespace melete {
namespace safetensors_test {

namespace fs = std::filesystem;

// A folder of its own for each test, gone afterwards.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "melete-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  std::string path_;
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The message of the Error that `action` throws; empty when it throws none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A safetensors file from a header text and a number of data bytes.
std::string raw(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\x01');
}

struct FaultGuard {
  ~FaultGuard() { AtomicFile::fail_after_bytes(-1); }
};

TEST(AtomicFileTest, CommitReplacesAndLeavesNothingElse) {
  Folder folder;
  const std::string path = folder / "a.txt";
  write_file_atomically(path, "first");
  write_file_atomically(path, "second");
  EXPECT_EQ(slurp(path), "second");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFileTest, WithoutCommitTheOldFileStays) {
  Folder folder;
  const std::string path = folder / "a.txt";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write(std::string(1 << 20, 'x'));
    EXPECT_EQ(folder.count(), 2u);
  }
  EXPECT_EQ(slurp(path), "old");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFileTest, InjectedFailureNamesPathAndReasonAndLeavesTheOldFile) {
  Folder folder;
  FaultGuard guard;
  const std::string path = folder / "a.bin";
  write_file_atomically(path, "old");
  for (const int64_t limit : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{300000}, int64_t{999999}}) {
    for (const int reason : {ENOSPC, EIO}) {
      AtomicFile::fail_after_bytes(limit, reason);
      const std::string message = error_of([&] {
        AtomicFile file(path);
        for (int i = 0; i < 100; ++i) file.write(std::string(10000, 'x'));
        file.commit();
      });
      EXPECT_NE(message.find(path), std::string::npos) << message;
      EXPECT_NE(message.find(std::strerror(reason)), std::string::npos) << message;
      EXPECT_EQ(slurp(path), "old");
      EXPECT_EQ(folder.count(), 1u) << "the temporary is still there";
    }
  }
  AtomicFile::fail_after_bytes(1000000);  // exactly as much as is written: no failure
  AtomicFile file(path);
  for (int i = 0; i < 100; ++i) file.write(std::string(10000, 'x'));
  file.commit();
  EXPECT_EQ(fs::file_size(path), 1000000u);
}

TEST(AtomicFileTest, AfterAFailureTheFileCannotBeCommitted) {
  Folder folder;
  FaultGuard guard;
  AtomicFile::fail_after_bytes(10);
  AtomicFile file(folder / "a.bin");
  EXPECT_THROW(file.write(std::string(1 << 20, 'x')), Error);
  AtomicFile::fail_after_bytes(-1);
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(folder.count(), 0u);
}

TEST(AtomicFileTest, RefusesFoldersDevicesAndMissingFolders) {
  Folder folder;
  EXPECT_NE(error_of([&] { AtomicFile file(folder.path()); }).find("a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { AtomicFile file("/dev/null"); }).find("device"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_NE(error_of([&] { AtomicFile file(folder / "no/such/a.txt"); }).find("No such file"),
            std::string::npos);
}

TEST(AtomicFileTest, KeepsALinkAndWritesWhereItPoints) {
  Folder folder;
  write_file_atomically(folder / "real.txt", "old");
  fs::create_symlink("real.txt", folder / "link.txt");
  write_file_atomically(folder / "link.txt", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link.txt"));
  EXPECT_EQ(slurp(folder / "real.txt"), "new");
}

TEST(AtomicFileTest, StaleTemporariesAreRemovedAndNothingElse) {
  Folder folder;
  spill(folder / ".model.safetensors.123-0.melete-tmp", "half");
  spill(folder / "notes.melete-tmp", "a person's own file");
  spill(folder / ".hidden", "another");
  EXPECT_EQ(remove_stale_temporaries(folder.path()).size(), 1u);
  EXPECT_EQ(folder.count(), 2u);
  EXPECT_TRUE(remove_stale_temporaries(folder / "missing").empty());
}

// Runs `body` in a child process; its exit code says what happened.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

constexpr int kAsExpected = 0, kWrong = 1, kNotPermitted = 77;

int write_too_much(const std::string& folder) {
  const std::string path = folder + "/a.bin";
  try {
    write_file_atomically(path, "old");
    AtomicFile file(path);
    for (int i = 0; i < 64; ++i) file.write(std::string(1 << 18, 'x'));
    file.commit();
    return kWrong;
  } catch (const Error& error) {
    const bool named = std::string(error.what()).find(path) != std::string::npos;
    const auto files = std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    return named && slurp(path) == "old" && files == 1 ? kAsExpected : kWrong;
  }
}

TEST(AtomicFileTest, FileSizeLimitLeavesTheOldFile) {
  Folder folder;
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const struct rlimit limit { 1 << 20, 1 << 20 };
              ::setrlimit(RLIMIT_FSIZE, &limit);
              return write_too_much(folder.path());
            }),
            kAsExpected);
}

TEST(AtomicFileTest, RealFullDiskLeavesTheOldFile) {
  Folder folder;
  const int result = in_child([&] {
    // A mount namespace of the child's own: the machine outside sees nothing of it.
    if (::unshare(CLONE_NEWNS) != 0) return kNotPermitted;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotPermitted;
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) return kNotPermitted;
    return write_too_much(folder.path());
  });
  if (result == kNotPermitted)
    GTEST_SKIP() << "mounting a small tmpfs needs more rights than this process has";
  EXPECT_EQ(result, kAsExpected);
}

TEST(SafetensorsTest, RoundTripOfEveryTypeAlignedAndInAnyOrder) {
  Folder folder;
  const std::string path = folder / "a.safetensors";
  const DType types[] = {DType::u8,  DType::f64, DType::boolean, DType::f32, DType::i16,
                         DType::f16, DType::i64, DType::bf16,    DType::i32, DType::i8};
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorBytes> tensors;
  Rng rng(1);
  for (size_t i = 0; i < std::size(types); ++i) {
    const std::vector<int64_t> shape{3, static_cast<int64_t>(i % 4), 5};
    storage.emplace_back(3 * (i % 4) * 5 * byte_size(types[i]));
    for (std::byte& b : storage.back()) b = static_cast<std::byte>(rng.next());
    tensors.push_back({"t." + std::to_string(i) + "\"\\\n\xc3\xa9", types[i], shape, {}});
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = storage[i];
  const std::byte one[] = {std::byte{1}};
  tensors.push_back({"scalar", DType::boolean, {}, one});
  const TextMap metadata{{"a", "text with \"quotes\" and \n"}, {"empty", ""}};
  write_safetensors(path, tensors, metadata);

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorBytes& expected : tensors) {
    const TensorBytes* got = file.find(expected.name);
    ASSERT_NE(got, nullptr) << expected.name;
    EXPECT_EQ(got->dtype, expected.dtype);
    EXPECT_EQ(got->shape, expected.shape);
    EXPECT_TRUE(
        std::equal(got->bytes.begin(), got->bytes.end(), expected.bytes.begin(), expected.bytes.end()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got->bytes.data()) % byte_size(got->dtype), 0u);
  }
  EXPECT_EQ(file.find("missing"), nullptr);
  uint64_t header = 0;
  const std::string bytes = slurp(path);
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(SafetensorsTest, EmptyFileOfTensorsIsFine) {
  Folder folder;
  write_safetensors(folder / "a", {}, {});
  EXPECT_TRUE(SafetensorsFile(folder / "a").tensors().empty());
  write_safetensors(folder / "b", {}, {{"only", "metadata"}});
  EXPECT_EQ(SafetensorsFile(folder / "b").metadata().at("only"), "metadata");
}

TEST(SafetensorsTest, WriterRefusesWhatAReaderWould) {
  Folder folder;
  const std::byte bytes[8] = {};
  const std::string path = folder / "a";
  EXPECT_THROW(write_safetensors(path, {{"x", DType::f32, {3}, bytes}}), Error);
  EXPECT_THROW(write_safetensors(path, {{"x", DType::f32, {2}, bytes}, {"x", DType::f32, {2}, bytes}}),
               Error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", DType::f32, {2}, bytes}}), Error);
  EXPECT_THROW(write_safetensors(path, {{"\xff\xfe", DType::f32, {2}, bytes}}), Error);
  EXPECT_THROW(write_safetensors(path, {{"x", DType::f32, {-2}, bytes}}), Error);
  EXPECT_EQ(folder.count(), 0u);
}

TEST(SafetensorsTest, RefusesHostileHeadersByName) {
  struct Case {
    std::string header;
    size_t data;
    std::string expected;
  };
  const std::string ok = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::vector<Case> cases{
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8, "not valid JSON"},
      {"[1,2]", 0, "does not start with"},
      {ok + "x", 8, "not valid JSON"},
      {ok, 7, "truncated"},
      {ok, 9, "belong to none"},
      {R"({"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, "element type 'F33'"},
      {R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "needs 12 bytes"},
      {R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "negative"},
      {R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "a fraction"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "before it begins"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8, "two data_offsets"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8, "too large"},
      {R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "too large"},
      {R"({"x":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0]}})", 0,
       "too large"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, "hole"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "overlaps"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       16, "two tensors"},
      {R"({"x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "repeats 'dtype'"},
      {R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", 8, "lacks"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":[1]}})", 8, "unknown field 'extra'"},
      {R"({"x":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, "list where none belongs"},
      {R"({"x":5})", 0, "does not belong"},
      {R"({"__metadata__":{"a":5}})", 0, "does not belong"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", 0, "repeats the metadata key"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "two __metadata__"},
      {"{\"x\":" + std::string(100000, '['), 0, "list where none belongs"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[" + std::string(200, '1') + "]}}", 0, ""},
  };
  Folder folder;
  spill(folder / "ok", raw(ok, 8));
  EXPECT_EQ(SafetensorsFile(folder / "ok").tensors().size(), 1u);
  for (const Case& c : cases) {
    const std::string path = folder / "hostile";
    spill(path, raw(c.header, c.data));
    const std::string message = error_of([&] { SafetensorsFile file(path); });
    EXPECT_NE(message.find(path), std::string::npos) << c.header.substr(0, 100) << " -> " << message;
    EXPECT_NE(message.find(c.expected), std::string::npos) << c.header.substr(0, 100) << " -> " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(SafetensorsTest, RefusesOversizedAndMissingHeaders) {
  Folder folder;
  const std::string path = folder / "a";
  std::string file = raw("{}", 0);
  const uint64_t huge[] = {100'000'001, UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63};
  for (const uint64_t length : huge) {
    std::memcpy(file.data(), &length, 8);
    spill(path, file);
    EXPECT_NE(error_of([&] { SafetensorsFile f(path); }).find("oversized header"), std::string::npos);
  }
  for (const std::string& bytes :
       {std::string(), std::string(7, 'x'), std::string("\x10\0\0\0\0\0\0\0{}", 10)}) {
    spill(path, bytes);
    EXPECT_NE(error_of([&] { SafetensorsFile f(path); }).find("truncated"), std::string::npos);
  }
  EXPECT_NE(error_of([&] { SafetensorsFile f(folder.path()); }).find("regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { SafetensorsFile f(folder / "missing"); }).find("No such file"), std::string::npos);
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  Folder folder;
  const std::byte bytes[24] = {};
  write_safetensors(folder / "whole",
                    {{"a", DType::f32, {2}, std::span(bytes).first(8)}, {"b", DType::f64, {3}, bytes}},
                    {{"k", "v"}});
  const std::string whole = slurp(folder / "whole");
  for (size_t size = 0; size < whole.size(); ++size) {
    spill(folder / "cut", whole.substr(0, size));
    EXPECT_THROW(SafetensorsFile(folder / "cut"), Error) << size << " of " << whole.size();
  }
}

TEST(ChecksumTest, KnownAnswers) {
  // RFC 3720, B.4, and the check value of the CRC catalogue.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
  // XXH3_128bits of nothing, as its specification gives it.
  EXPECT_EQ(Checksum().hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(ChecksumTest, PiecesDoNotMatterAndBordersOfTextsDo) {
  Checksum whole, pieces, ab_c, a_bc;
  const std::string text(100000, 'q');
  whole.add(std::as_bytes(std::span(text)));
  for (size_t i = 0; i < text.size(); i += 777)
    pieces.add(std::as_bytes(std::span(text).subspan(i, std::min<size_t>(777, text.size() - i))));
  EXPECT_EQ(whole.hex(), pieces.hex());
  ab_c.add(std::string_view("ab"));
  ab_c.add(std::string_view("c"));
  a_bc.add(std::string_view("a"));
  a_bc.add(std::string_view("bc"));
  EXPECT_NE(ab_c.hex(), a_bc.hex());
}

}  // namespace safetensors_test
}  // namespace melete
