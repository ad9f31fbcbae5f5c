// The restricted unpickler: what it reads, and what it refuses.
#include "io/base/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "core/base/error.h"
#include "io/base/torch_file.h"
#include "io/base/zip_archive.h"
#include "pickle_bytes.h"
#include "temporary_folder.h"

namespace melete {
namespace pickle_test {

using namespace testing;
using ::testing::HasSubstr;
using Kind = PickleValue::Kind;

// Trees with numpy or joblib arrays look into the pickle's bytes: they stay until the end of the test.
PickleTree parse(const std::string& pickle, const UnpickleOptions& options = {}) {
  static std::vector<std::unique_ptr<std::string>> kept;
  kept.push_back(std::make_unique<std::string>(pickle));
  return unpickle(std::as_bytes(std::span(*kept.back())), "test", options);
}

std::string refusal(const std::string& pickle, const UnpickleOptions& options = {}) {
  try {
    parse(pickle, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class T>
std::string as_bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(Pickle, PlainValues) {
  const PickleTree tree =
      parse(proto() +
            dict(text("none") + "N" + text("yes") + "\x88" + text("n") + number(-7) + text("real") + "G" +
                 std::string("\x3f\xf8\0\0\0\0\0\0", 8) + text("list") + "](" + number(1) + "K\x02" + "e" +
                 text("pair") + number(3) + text("x") + "\x86" + text("raw") +
                 bytes(std::string("\0\xff", 2)) + number(5) + text("five")) +
            ".");
  const PickleValue& root = tree.root();
  EXPECT_TRUE(root.find("none")->is_none());
  EXPECT_TRUE(root.find("yes")->is(Kind::boolean));
  EXPECT_EQ(root.find("n")->integer(), -7);
  EXPECT_EQ(root.find("real")->number(), 1.5);
  EXPECT_EQ(root.find("list")->items()->size(), 2u);
  EXPECT_EQ(root.find("list")->items()->at(1)->integer(), 2);
  EXPECT_TRUE(root.find("pair")->is(Kind::tuple));
  EXPECT_EQ(*root.find("raw")->text(), std::string("\0\xff", 2));
  EXPECT_EQ(*root.find(5)->text(), "five");
  EXPECT_EQ(root.find("absent"), nullptr);
  EXPECT_THROW(root.at("absent", "test"), Error);
}

TEST(Pickle, LongNumbersKeepTheirSign) {
  EXPECT_EQ(parse("\x8a\x01\xff.").root().integer(), -1);
  EXPECT_EQ(parse(std::string("\x8a\x02\xff\x00.", 5)).root().integer(), 255);
  EXPECT_EQ(parse(std::string("\x8a\x08\0\0\0\0\0\0\0\x80.", 11)).root().integer(), INT64_MIN);
  EXPECT_EQ(parse(std::string("\x8a\x09\0\0\0\0\0\0\0\x80\0.", 12)).root().integer(), std::nullopt);
  EXPECT_EQ(parse("L-12345678901L\n.").root().integer(), -12345678901);
}

TEST(Pickle, AKeyGivenTwiceHasItsLastValueAtItsFirstPlace) {
  const PickleTree tree = parse(dict(text("a") + "K\x01" + text("b") + "K\x02" + text("a") + "K\x03") + ".");
  ASSERT_EQ(tree.root().dict()->entries.size(), 2u);
  EXPECT_EQ(*tree.root().dict()->entries[0].first->text(), "a");
  EXPECT_EQ(tree.root().find("a")->integer(), 3);
}

TEST(Pickle, ConfigurationClassesAreInertData) {
  const PickleTree tree =
      parse(proto() + global("argparse", "Namespace") + ")\x81" + dict(text("lr") + number(3)) + "b.");
  ASSERT_TRUE(tree.root().is(Kind::object));
  EXPECT_EQ(tree.root().object()->name, "argparse.Namespace");
  EXPECT_EQ(tree.root().find("lr")->integer(), 3);

  const PickleTree ordered = parse(global("collections", "OrderedDict") + ")R(" + text("w") + number(1) +
                                   "u" + dict(text("_metadata") + number(2)) + "b.");
  EXPECT_EQ(ordered.root().find("w")->integer(), 1);
  EXPECT_EQ(ordered.root().dict()->attributes->find("_metadata")->integer(), 2);
}

TEST(Pickle, BytesOfProtocol2) {
  const std::string latin = "\xc3\xbf\x01\xc2\x80";  // U+00FF, U+0001, U+0080
  const PickleTree tree = parse(global("_codecs", "encode") + tuple(text(latin) + text("latin1")) + "R.");
  EXPECT_EQ(*tree.root().text(), "\xff\x01\x80");
  EXPECT_THAT(refusal(global("_codecs", "encode") + tuple(text("\xe2\x82\xac") + text("latin1")) + "R."),
              HasSubstr("beyond 255"));
}

TEST(Pickle, RefusesCallsByTheirName) {
  const struct {
    const char *module, *name;
  } hostile[] = {{"os", "system"},        {"posix", "system"},
                 {"builtins", "eval"},    {"__builtin__", "exec"},
                 {"builtins", "getattr"}, {"subprocess", "Popen"},
                 {"torch", "load"},       {"torch.hub", "load"},
                 {"runpy", "_run_code"},  {"numpy", "load"},
                 {"webbrowser", "open"},  {"builtins", "__import__"},
                 {"torch.jit", "load"},   {"torch.storage", "_load_from_bytes"}};
  for (const auto& [module, name] : hostile) {
    const std::string full = std::string(module) + "." + name;
    const std::string call = "(" + text("touch /tmp/hacked") + "tR.";
    EXPECT_THAT(refusal(proto() + global(module, name) + call), HasSubstr("`" + full + "`")) << full;
    // Protocol 4's way of naming, and protocol 0's way of calling.
    EXPECT_THAT(refusal(proto() + text(module) + text(name) + "\x93" + call), HasSubstr("`" + full + "`"));
    EXPECT_THAT(refusal("(" + text("x") + "i" + module + "\n" + name + "\n."), HasSubstr("`" + full + "`"));
  }
  // Through a harmless class to something that is not.
  EXPECT_THAT(refusal(text("collections") + text("OrderedDict.__init__") + "\x93."), HasSubstr("refused"));
  EXPECT_THAT(refusal(text("argparse") + text("Namespace.__class__") + "\x93."), HasSubstr("refused"));
}

TEST(Pickle, FurtherInertNamesAreTheCallersChoice) {
  const std::string pickle = global("acme.config", "Model") + ")R.";
  EXPECT_THAT(refusal(pickle), HasSubstr("`acme.config.Model`"));
  UnpickleOptions options;
  options.inert = {"acme."};
  EXPECT_EQ(parse(pickle, options).root().object()->name, "acme.config.Model");
}

TEST(Pickle, RefusesBombs) {
  EXPECT_THAT(refusal("]q\0h\0a."), HasSubstr("damaged"));
  EXPECT_THAT(refusal(std::string("]q\0h\0a.", 7)), HasSubstr("contains itself"));
  EXPECT_THAT(refusal(std::string(100000, ']') + std::string(99999, 'a') + "."), HasSubstr("nested"));
  // Each list holds the one before twice: 2^60 values when walked.
  std::string laughs = std::string("]q\0", 3);
  for (int i = 0; i < 60; ++i) laughs += std::string("](h\0h\0eq\0", 9);
  EXPECT_THAT(refusal(laughs + "."), HasSubstr("repeat"));
  EXPECT_THAT(refusal("X" + raw(uint32_t{0xffffffff}) + "x."), HasSubstr("bytes wanted"));
  EXPECT_THAT(refusal("\x8e" + raw(uint64_t{1} << 62) + "x."), HasSubstr("bytes wanted"));
  std::string nested = global("torch._tensor", "_rebuild_from_type_v2") + "q" + std::string(1, '\1');
  EXPECT_THAT(refusal(nested + "(h\1N)tR."), HasSubstr("of itself"));
}

TEST(Pickle, RefusesBrokenStreams) {
  for (const char* broken : {"",      ".",    "a.",     "t.",   "(",    "K",       "X\x05",   "h\x07.",
                             "R.",    "NNR.", "(NR.",   "]Nb",  "}Ns.", "u.",      "(Nu.",    "\xff.",
                             "P1\n.", "NQ.",  "I1x\n.", "F\n.", "p9\n", "NN\x93.", "N(t\x81."})
    EXPECT_THROW(parse(broken), Error) << broken;
}

TEST(Pickle, NumpyArrays) {
  const std::string dtype = global("numpy", "dtype") + tuple(text("f4") + "\x89\x88") + "R" +
                            tuple(number(3) + text("<") + "NNN" + number(-1) + number(-1) + number(0)) + "b";
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto array = [&](const std::string& order, const std::string& payload) {
    return global("numpy.core.multiarray", "_reconstruct") +
           tuple(global("numpy", "ndarray") + tuple(number(0)) + bytes("b")) + "R" +
           tuple(number(1) + tuple(number(2) + number(3)) + dtype + order + bytes(payload)) + "b.";
  };
  const PickleTree tree = parse(array("\x89", as_bytes_of(values)));
  const PickleTensor* tensor = tree.root().tensor();
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensor->strides, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(std::memcmp(tensor->bytes.data(), values.data(), 24), 0);

  const PickleTree fortran = parse(array("\x88", as_bytes_of(values)));
  std::vector<float> rows(6);
  copy_contiguous(*fortran.root().tensor(), std::as_writable_bytes(std::span(rows)));
  EXPECT_EQ(rows, (std::vector<float>{1, 3, 5, 2, 4, 6}));
  EXPECT_THAT(refusal(array("\x89", "short")), HasSubstr("6 elements of 4 bytes has 5 bytes"));
}

// What joblib.dump writes for a scikit-learn model: the array's bytes are between the opcodes.
std::string joblib_kmeans(const std::vector<double>& centres, int32_t rows, int32_t columns) {
  const std::string dtype = global("numpy", "dtype") + tuple(text("f8") + "\x89\x88") + "R" +
                            tuple(number(3) + text("<") + "NNN" + number(-1) + number(-1) + number(0)) + "b";
  const std::string wrapper =
      global("joblib.numpy_pickle", "NumpyArrayWrapper") + ")\x81" +
      dict(text("subclass") + global("numpy", "ndarray") + text("shape") +
           tuple(number(rows) + number(columns)) + text("order") + text("C") + text("dtype") + dtype +
           text("allow_mmap") + "\x88" + text("numpy_array_alignment_bytes") + number(16)) +
      "b" + std::string("\x03\xff\xff\xff", 4) + as_bytes_of(centres);
  return proto() + global("sklearn.cluster._kmeans", "MiniBatchKMeans") + ")\x81" +
         dict(text("n_clusters") + number(rows) + text("cluster_centers_") + wrapper + text("after") +
              number(9)) +
         "b.";
}

TEST(Pickle, JoblibArraysBetweenTheOpcodes) {
  const std::vector<double> centres{0.5, 1.5, 2.5, 3.5, 4.5, 5.5};
  TemporaryFolder folder;
  write_bytes(folder / "km.bin", joblib_kmeans(centres, 3, 2));
  const PickleFile file(folder / "km.bin");
  EXPECT_EQ(file.root().find("after")->integer(), 9);
  const PickleTensor* tensor = file.root().find("cluster_centers_")->tensor();
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 2}));
  std::vector<double> read(6);
  copy_contiguous(*tensor, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, centres);
  EXPECT_THAT(refusal(joblib_kmeans(centres, INT32_MAX, INT32_MAX)), HasSubstr("more elements"));
  EXPECT_THAT(refusal(joblib_kmeans(centres, 30, 30)), HasSubstr("bytes wanted"));

  write_bytes(folder / "packed.bin", "\x78\x9cxxxx");
  try {
    PickleFile packed(folder / "packed.bin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("compressed"));
  }
}

// --- archives

std::string archive(const TemporaryFolder& folder, const std::string& pickle,
                    const std::vector<std::pair<std::string, std::string>>& storages) {
  const std::string path = folder / "x.pt";
  AtomicFile file(path);
  ZipWriter zip(file);
  zip.add("x/data.pkl", pickle);
  for (const auto& [key, data] : storages) zip.add("x/data/" + key, data);
  zip.add("x/version", "3\n");
  zip.finish();
  file.commit();
  return path;
}

std::string open_error(const std::string& path) {
  try {
    TorchFile file(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TorchFile, TensorsAreViewsWithStrides) {
  TemporaryFolder folder;
  const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};
  const std::string path =
      archive(folder,
              proto() +
                  dict(text("whole") +
                       tensor("FloatStorage", "0", 8, 0, number(2) + number(4), number(4) + number(1)) +
                       text("transposed") +
                       tensor("FloatStorage", "0", 8, 1, number(3) + number(2), number(1) + number(4)) +
                       text("half") + tensor("HalfStorage", "1", 2, 0, number(2), number(1)) +
                       text("scalar") + tensor("LongStorage", "2", 1, 0, "", "")) +
                  ".",
              {{"0", as_bytes_of(values)}, {"1", std::string("\0\x3c\0\x40", 4)}, {"2", raw(int64_t{42})}});
  const TorchFile file(path);
  EXPECT_FALSE(file.legacy());
  const PickleTensor* transposed = file.root().find("transposed")->tensor();
  std::vector<float> read(6);
  copy_contiguous(*transposed, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, (std::vector<float>{1, 5, 2, 6, 3, 7}));
  EXPECT_FALSE(transposed->contiguous());
  EXPECT_EQ(file.root().find("whole")->tensor()->storage, transposed->storage);
  EXPECT_EQ(file.root().find("half")->tensor()->dtype, DType::f16);
  EXPECT_EQ(file.root().find("scalar")->tensor()->numel(), 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.root().find("whole")->tensor()->bytes.data()) % 64, 0u);
}

TEST(TorchFile, RefusesTensorsThatReachOutside) {
  TemporaryFolder folder;
  const auto with = [&](const std::string& made, size_t bytes_of_storage = 32) {
    return open_error(archive(folder, proto() + made + ".", {{"0", std::string(bytes_of_storage, 'x')}}));
  };
  EXPECT_EQ(with(tensor("FloatStorage", "0", 8, 0, number(8), number(1))), "");
  EXPECT_THAT(with(tensor("FloatStorage", "0", 8, 1, number(8), number(1))), HasSubstr("past the end"));
  EXPECT_THAT(with(tensor("FloatStorage", "0", 8, -1, number(1), number(1))), HasSubstr("past the end"));
  EXPECT_THAT(with(tensor("FloatStorage", "0", 8, 0, number(-8), number(1))), HasSubstr("negative"));
  EXPECT_THAT(with(tensor("FloatStorage", "0", 8, 0, number(2), number(8))), HasSubstr("past the end"));
  EXPECT_THAT(with(tensor("FloatStorage", "0", 8, 0, number(2), number(-1))), HasSubstr("negative"));
  std::string huge, ones;
  for (int i = 0; i < 5; ++i) huge += number(INT32_MAX), ones += number(1);
  EXPECT_THAT(with(tensor("FloatStorage", "0", 8, 0, huge, ones)), HasSubstr("any machine"));
  EXPECT_THAT(with(tensor("FloatStorage", "0", 9, 0, number(8), number(1))), HasSubstr("9 elements"));
  EXPECT_THAT(with(tensor("FloatStorage", "1", 8, 0, number(8), number(1))), HasSubstr("data/1"));
  EXPECT_THAT(with(tensor("EvilStorage", "0", 8, 0, number(8), number(1))), HasSubstr("torch.EvilStorage"));
}

TEST(TorchFile, ReadsTheFormatFromBeforeTorch1_6) {
  const std::vector<float> values{3, 4, 5};
  const std::string mark("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  std::string object = tensor("FloatStorage", "940", 3, 1, number(2), number(1));
  // Legacy storages have a sixth field.
  object.replace(object.find("tQ"), 2, "NtQ");
  const std::string file = mark + proto() + "M\xe9\x03." + proto() +
                           dict(text("little_endian") + "\x88" + text("protocol_version") + "M\xe9\x03") +
                           "." + proto() + dict(text("w") + object) + "." + proto() + "](" + text("940") +
                           "e." + raw(int64_t{3}) + as_bytes_of(values);
  TemporaryFolder folder;
  write_bytes(folder / "old.bin", file);
  const TorchFile read(folder / "old.bin");
  EXPECT_TRUE(read.legacy());
  std::vector<float> out(2);
  copy_contiguous(*read.root().find("w")->tensor(), std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, (std::vector<float>{4, 5}));
  for (size_t size = 1; size < file.size(); size += 3) {
    write_bytes(folder / "old.bin", file.substr(0, size));
    EXPECT_THROW(TorchFile(folder / "old.bin"), Error) << size;
  }
}

TEST(TorchFile, RefusesDamage) {
  TemporaryFolder folder;
  const std::string path =
      archive(folder, proto() + tensor("FloatStorage", "0", 8, 0, number(8), number(1)) + ".",
              {{"0", std::string(32, 'x')}});
  const std::string good = read_bytes(path);
  for (size_t size = 0; size < good.size(); size += 7) {
    write_bytes(path, good.substr(0, size));
    EXPECT_NE(open_error(path), "") << size;
  }
  std::string flipped = good;
  flipped[good.find(std::string(32, 'x')) + 3] ^= 1;
  write_bytes(path, flipped);
  EXPECT_THAT(open_error(path), HasSubstr("checksum of member 'x/data/0'"));
  std::string squeezed = good;
  squeezed[squeezed.rfind("PK\x01\x02", std::string::npos) + 10] = 8;  // the last member says "deflated"
  write_bytes(path, squeezed);
  EXPECT_THAT(open_error(path), HasSubstr("compressed"));
  write_bytes(path, "no such thing");
  EXPECT_THAT(open_error(path), HasSubstr("torch.save"));
  EXPECT_THAT(open_error(folder / "absent.pt"), HasSubstr("cannot be opened"));
}

TEST(Zip, ChecksumIsTheCommonOne) {
  EXPECT_EQ(crc32(std::as_bytes(std::span(std::string_view("123456789")))), 0xcbf43926u);
}

}  // namespace pickle_test
}  // namespace melete
