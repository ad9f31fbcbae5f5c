#include "run/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "io/base/audio_file.h"
#include "io/base/checksum.h"
#include "run/sample_writer.h"

namespace melete {
namespace metrics_test {

namespace fs = std::filesystem;
using nlohmann::json;

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    std::string pattern = (fs::temp_directory_path() / "melete-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~MetricsTest() override { fs::remove_all(folder_); }
  std::string folder_;
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<json> rows_of(const std::string& path) {
  std::vector<json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) rows.push_back(json::parse(line));
  return rows;
}

StepReport step_report(int64_t step, double loss) {
  StepReport report;
  report.step = step;
  report.losses = {{"total", loss}, {"mel", 0.5}};
  report.gradient_norms = {{"generator", 2.0}};
  report.learning_rates = {{"generator", 3e-4}};
  report.chance_levels = {{"mel", 6.9}};
  report.seconds = 0.25;
  return report;
}

TEST_F(MetricsTest, JsonlHasOneParsableRowAnEvent) {
  const std::string path = folder_ + "/metrics.jsonl";
  {
    JsonlReporter reporter(path);
    Reporters all;
    all.add(reporter);
    RunStart run;
    run.task = "soundstream";
    run.parameter_counts = {{"encoder", 123}};
    all.start(run);
    all.step(step_report(1, 2.5));
    EXPECT_EQ(rows_of(path).size(), 2u) << "rows must be on disk at once";
    StepReport bad = step_report(2, std::numeric_limits<double>::quiet_NaN());
    bad.losses.emplace_back("up", std::numeric_limits<double>::infinity());
    bad.losses.emplace_back("down", -std::numeric_limits<double>::infinity());
    bad.skipped = true;
    bad.skip_reason = "loss is not finite";
    all.step(bad);
    all.validation({2, {{"mel", 0.75}}, {}, "ema"});
    all.saved("checkpoints/x", 2);
    all.sample_written("samples/\xff.flac");
    all.note("n");
    all.warning("two\nlines");
    all.finished("done");
  }
  const std::vector<json> rows = rows_of(path);
  ASSERT_EQ(rows.size(), 9u);
  for (const json& row : rows) EXPECT_TRUE(row.contains("kind") && row.at("step").is_number_integer()) << row;
  EXPECT_EQ(rows[0]["parameters"]["encoder"], 123);
  EXPECT_EQ(rows[1]["losses"]["total"], 2.5);
  EXPECT_EQ(rows[1]["chance_levels"]["mel"], 6.9);
  EXPECT_FALSE(rows[1].contains("skipped"));
  EXPECT_EQ(rows[2]["losses"]["total"], "nan");
  EXPECT_EQ(rows[2]["losses"]["up"], "inf");
  EXPECT_EQ(rows[2]["losses"]["down"], "-inf");
  EXPECT_EQ(rows[2]["skipped"], "loss is not finite");
  EXPECT_EQ(rows[3]["label"], "ema");
  EXPECT_EQ(rows[7]["step"], 2);
  { JsonlReporter(path).note("appended"); }
  EXPECT_EQ(rows_of(path).size(), 10u);
}

// A reader written from the formats' descriptions, not from the writer: fields by number, checks of every
// CRC.
struct Message {
  std::multimap<int, std::string> bytes;
  std::multimap<int, uint64_t> numbers;  // varint, 32 and 64 bit values as they are
};

uint64_t little(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

Message parse(std::string_view data) {
  Message message;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const unsigned char c = static_cast<unsigned char>(data.at(at++));
      value |= static_cast<uint64_t>(c & 0x7f) << shift;
      if (c < 0x80) return value;
    }
  };
  while (at < data.size()) {
    const uint64_t tag = varint();
    const int field = static_cast<int>(tag >> 3);
    const int type = static_cast<int>(tag & 7);
    if (type == 0) {
      message.numbers.emplace(field, varint());
    } else if (type == 2) {
      const size_t size = varint();
      message.bytes.emplace(field, std::string(data.substr(at, size)));
      at += size;
    } else {
      const size_t size = type == 1 ? 8 : 4;
      EXPECT_TRUE(type == 1 || type == 5);
      message.numbers.emplace(field, little(data.substr(at, size)));
      at += size;
    }
  }
  EXPECT_EQ(at, data.size());
  return message;
}

uint32_t unmask(uint64_t masked) {
  const uint32_t turned = static_cast<uint32_t>(masked) - 0xa282ead8u;
  return turned >> 17 | turned << 15;
}

std::vector<Message> events_of(const std::string& path) {
  const std::string file = slurp(path);
  std::vector<Message> events;
  size_t at = 0;
  while (at < file.size()) {
    const std::string_view rest = std::string_view(file).substr(at);
    EXPECT_GE(rest.size(), 16u);
    const uint64_t size = little(rest.substr(0, 8));
    EXPECT_EQ(unmask(little(rest.substr(8, 4))), crc32c(rest.substr(0, 8)));
    const std::string_view data = rest.substr(12, size);
    EXPECT_EQ(unmask(little(rest.substr(12 + size, 4))), crc32c(data));
    events.push_back(parse(data));
    at += size + 16;
  }
  EXPECT_EQ(at, file.size());
  return events;
}

std::map<std::string, float> scalars_of(const Message& event) {
  std::map<std::string, float> result;
  const Message summary = parse(event.bytes.find(5)->second);
  for (auto [it, end] = summary.bytes.equal_range(1); it != end; ++it) {
    const Message value = parse(it->second);
    result[value.bytes.find(1)->second] =
        std::bit_cast<float>(static_cast<uint32_t>(value.numbers.find(2)->second));
  }
  return result;
}

TEST_F(MetricsTest, MaskedCrcHasItsKnownValue) {
  // "123456789": CRC-32C e3069283, turned right by 15 bits (2507c60d), plus the mask constant.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507c60du + 0xa282ead8u);
}

TEST_F(MetricsTest, EventFilesParseBackWithTheirChecksums) {
  std::string path;
  {
    TensorBoardReporter reporter(folder_);
    EXPECT_TRUE(fs::is_empty(folder_)) << "no file before the first event";
    RunStart run;
    run.resumed_from_step = 40;
    reporter.start(run);
    reporter.step(step_report(41, 2.5));
    reporter.step(step_report(300, std::numeric_limits<double>::quiet_NaN()));
    reporter.validation({300, {{"mel", 0.75}}, {}, "ema"});
    reporter.image(300, "picture", "PNGBYTES", 12, 34);
    path = reporter.path();
    TensorBoardReporter second(folder_);  // the same second, the same process: a file of its own
    second.scalars(1, {{"x", 1}});
    EXPECT_NE(second.path(), path);
  }
  const std::vector<Message> events = events_of(path);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].bytes.find(3)->second, "brain.Event:2");
  EXPECT_EQ(events[1].numbers.find(2)->second, 41u);  // what came at and after 41 is dropped by the viewer
  EXPECT_EQ(parse(events[1].bytes.find(7)->second).numbers.find(1)->second, 1u);
  EXPECT_EQ(events[2].numbers.find(2)->second, 41u);
  EXPECT_EQ(scalars_of(events[2]).at("loss/total"), 2.5f);
  EXPECT_EQ(scalars_of(events[2]).at("learning_rate/generator"), 3e-4f);
  EXPECT_EQ(events[3].numbers.find(2)->second, 300u);
  EXPECT_TRUE(std::isnan(scalars_of(events[3]).at("loss/total")));
  EXPECT_EQ(scalars_of(events[4]).at("validation_ema/mel"), 0.75f);
  const Message value = parse(parse(events[5].bytes.find(5)->second).bytes.find(1)->second);
  const Message image = parse(value.bytes.find(4)->second);
  EXPECT_EQ(value.bytes.find(1)->second, "picture");
  EXPECT_EQ(image.numbers.find(1)->second, 34u);
  EXPECT_EQ(image.numbers.find(2)->second, 12u);
  EXPECT_EQ(image.bytes.find(4)->second, "PNGBYTES");
  const double wall = std::bit_cast<double>(events[2].numbers.find(1)->second);
  EXPECT_NEAR(wall, static_cast<double>(::time(nullptr)), 60);
}

TEST_F(MetricsTest, SpectrogramShowsASineWhereItIs) {
  constexpr int kRate = 16000;
  std::vector<float> sine(kRate);
  for (size_t i = 0; i < sine.size(); ++i)
    sine[i] = static_cast<float>(std::sin(2 * M_PI * 1000 * static_cast<double>(i) / kRate));
  const auto frames = spectrogram_db(sine, {});
  ASSERT_EQ(frames.size(), 16000u / 256 + 1);
  const auto& frame = frames[frames.size() / 2];
  const auto loudest = std::max_element(frame.begin(), frame.end()) - frame.begin();
  EXPECT_EQ(loudest, 1000 * 1024 / kRate);
  EXPECT_NEAR(frame[static_cast<size_t>(loudest)], 0.0f, 0.01f);  // full scale
  EXPECT_LT(frame[300], -100.0f);
}

TEST_F(MetricsTest, PicturesOfAnyInputAreDrawn) {
  const std::vector<float> none, one(1, 0.5f), silence(4000, 0.0f), broken(4000, std::nanf(""));
  for (const auto* a : {&none, &one, &silence, &broken})
    for (const auto* b : {&none, &one, &silence, &broken})
      EXPECT_GT(spectrogram_pair(std::string(500, 'x'), *a, *b, 8000).width, 0);
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const bool logarithmic : {false, true}) {
    PlotStyle style{"title", "x", "y", logarithmic, logarithmic, 600, 400};
    EXPECT_EQ(plot(style, {}).width, 600);
    EXPECT_EQ(plot(style, {{"a", {1}, {1}, true, true, {"p"}}}).height, 400);
    EXPECT_EQ(plot(style, {{"a", {1, 2, 3, 4}, {nan, inf, -1, 0}, true, false, {}}}).height, 400);
    EXPECT_EQ(plot(style, {{"a", {-1e300, 1e300}, {1e-300, 1e300}, true, false, {}}}).height, 400);
  }
  EXPECT_EQ(viridis(std::nan("")).blue, viridis(-1).blue);
  EXPECT_EQ(viridis(7).red, viridis(1).red);
}

TEST_F(MetricsTest, SamplesGetTheirOwnNamesAndAreReported) {
  struct Listener : Reporter {
    std::vector<std::string> paths;
    void sample_written(const std::string& path) override { paths.push_back(path); }
  } listener;
  TensorBoardReporter board(folder_);
  Reporters all;
  all.add(listener);
  all.add(board);
  SampleWriter writer(folder_, 100, all);
  const at::Tensor stereo = at::stack({at::full({800}, 0.25), at::full({800}, -0.5)});
  const std::string first = writer.audio("../odd name/ema", stereo, 16000);
  at::Tensor wild = at::full({800}, 0.25);
  wild[0] = std::nanf("");
  wild[1] = 5.0;
  const std::string second = writer.audio("../odd name/ema", wild, 16000);
  const std::string picture = writer.spectrogram_pair("pair", stereo, wild, 16000);
  EXPECT_EQ(first, folder_ + "/samples/step_00000100/_._odd_name_ema.flac");
  EXPECT_EQ(second, folder_ + "/samples/step_00000100/_._odd_name_ema-2.flac");
  EXPECT_EQ(picture, folder_ + "/pictures/step_00000100/pair.png");
  EXPECT_EQ(listener.paths, (std::vector<std::string>{first, second, picture}));
  const Audio read = read_audio(first);
  EXPECT_EQ(read.channels, 2);
  EXPECT_EQ(read.frames(), 800);
  EXPECT_NEAR(read.samples[100], 0.25f, 1e-4);
  EXPECT_NEAR(read.samples[101], -0.5f, 1e-4);
  const Audio clipped = read_audio(second);
  EXPECT_EQ(clipped.samples[0], 0.0f);
  EXPECT_NEAR(clipped.samples[1], 1.0f, 1e-4);
  EXPECT_GT(read_png(picture).width, 500);
  const std::vector<Message> events = events_of(board.path());
  ASSERT_EQ(events.size(), 4u);
  const Message audio =
      parse(parse(parse(events[1].bytes.find(5)->second).bytes.find(1)->second).bytes.find(6)->second);
  EXPECT_EQ(audio.bytes.find(5)->second, "audio/flac");
  EXPECT_EQ(audio.bytes.find(4)->second, slurp(first));
  EXPECT_EQ(audio.numbers.find(2)->second, 2u);
  EXPECT_EQ(audio.numbers.find(3)->second, 800u);
  EXPECT_THROW(writer.audio("x", at::zeros({2, 2, 2}), 16000), std::exception);
}

}  // namespace metrics_test
}  // namespace melete
