#include "run/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "io/base/audio_file.h"
#include "io/base/checksum.h"
#include "io/base/png.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

template <class Pairs>
ordered_json object(const Pairs& values) {
  ordered_json result = ordered_json::object();
  for (const auto& [name, value] : values) result[name] = number(value);
  return result;
}

// Under "expected": what a recipe gave where it was measured, as [low, high].
void add_expected(ordered_json& row, const Bands& bands) {
  if (bands.empty()) return;
  ordered_json& expected = row["expected"] = ordered_json::object();
  for (const auto& [name, band] : bands) expected[name] = {number(band.low), number(band.high)};
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Names of files and messages of libraries may hold bytes that are not UTF-8; a row is written all the same.
std::string dump(const ordered_json& row) {
  return row.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Protocol buffers by hand: a field is a tag (number and wire type) and a value.
namespace wire {

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out + static_cast<char>(value);
}
std::string tag(int field, int type) {
  return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}
template <class Bits>
std::string little_endian(Bits bits) {
  std::string out;
  for (size_t i = 0; i < sizeof bits; ++i) out += static_cast<char>(bits >> (8 * i));
  return out;
}
std::string integer(int field, int64_t value) {
  return tag(field, 0) + varint(static_cast<uint64_t>(value));
}
std::string real64(int field, double value) {
  return tag(field, 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string real32(int field, float value) {
  return tag(field, 5) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes(int field, std::string_view value) {
  return tag(field, 2) + varint(value.size()) + std::string(value);
}

}  // namespace wire

// Fields of tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7;
// of Summary: value 1; of Summary.Value: tag 1, simple_value 2, image 4, audio 6.
std::string summary_value(const std::string& tag, const std::string& content) {
  return wire::bytes(1, wire::bytes(1, tag) + content);
}

}  // namespace

JsonlReporter::JsonlReporter(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, "[{}] cannot be opened for writing: {}", path, std::strerror(errno));
}

JsonlReporter::~JsonlReporter() {
  ::close(descriptor_);
}

// One write call a row: a killed process leaves at most one cut row, the last.
void JsonlReporter::row(const std::string& json_line) {
  const std::string line = json_line + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(descriptor_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    require(count > 0, "[{}] a row of metrics cannot be written: {}", path_, std::strerror(errno));
    done += static_cast<size_t>(count);
  }
}

void JsonlReporter::start(const RunStart& run) {
  step_ = std::max<int64_t>(run.resumed_from_step, 0);
  ordered_json json{{"kind", "start"}, {"step", step_}, {"time", wall_seconds()}, {"task", run.task}};
  json["parameters"] = ordered_json::object();
  for (const auto& [name, count] : run.parameter_counts) json["parameters"][name] = count;
  json["data"] = run.data;
  json["threads"] = run.threads;
  json["precision"] = run.precision;
  json["device"] = run.device;
  json["resumed_from_step"] =
      run.resumed_from_step >= 0 ? ordered_json(run.resumed_from_step) : ordered_json();
  json["steps_total"] = run.steps_total;
  json["main_figure"] = run.main_figure.name;
  if (run.main_figure.higher_is_better) json["higher_is_better"] = true;
  row(dump(json));
}

void JsonlReporter::step(const StepReport& report) {
  step_ = report.step;
  ordered_json json{
      {"kind", "step"}, {"step", step_}, {"time", wall_seconds()}, {"losses", object(report.losses)}};
  json["gradient_norms"] = object(report.gradient_norms);
  json["learning_rates"] = object(report.learning_rates);
  if (!report.chance_levels.empty()) json["chance_levels"] = object(report.chance_levels);
  add_expected(json, report.expected);
  json["seconds"] = number(report.seconds);
  json["data_wait_seconds"] = number(report.data_wait_seconds);
  json["items_per_second"] = number(report.items_per_second);
  if (report.skipped) json["skipped"] = report.skip_reason;
  json["skipped_total"] = report.skipped_total;
  row(dump(json));
}

void JsonlReporter::validation(const ValidationReport& report) {
  ordered_json json{
      {"kind", "validation"}, {"step", report.step}, {"time", wall_seconds()}, {"label", report.label}};
  json["losses"] = object(report.losses);
  if (!report.chance_levels.empty()) json["chance_levels"] = object(report.chance_levels);
  add_expected(json, report.expected);
  row(dump(json));
}

void JsonlReporter::saved(const std::string& path, int64_t step) {
  row(dump({{"kind", "saved"}, {"step", step}, {"time", wall_seconds()}, {"path", path}}));
}

void JsonlReporter::sample_written(const std::string& path) {
  row(dump({{"kind", "sample"}, {"step", step_}, {"time", wall_seconds()}, {"path", path}}));
}

void JsonlReporter::note(const std::string& text) {
  row(dump({{"kind", "note"}, {"step", step_}, {"time", wall_seconds()}, {"text", text}}));
}

void JsonlReporter::warning(const std::string& text) {
  row(dump({{"kind", "warning"}, {"step", step_}, {"time", wall_seconds()}, {"text", text}}));
}

void JsonlReporter::finished(const std::string& reason) {
  row(dump({{"kind", "finished"}, {"step", step_}, {"time", wall_seconds()}, {"reason", reason}}));
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string frame_record(std::string_view data) {
  const std::string length = wire::little_endian(static_cast<uint64_t>(data.size()));
  return length + wire::little_endian(masked_crc32c(length)) + std::string(data) +
         wire::little_endian(masked_crc32c(data));
}

TensorBoardReporter::TensorBoardReporter(std::string folder) : folder_(std::move(folder)) {}

TensorBoardReporter::~TensorBoardReporter() {
  if (file_) std::fclose(file_);
}

void TensorBoardReporter::record(std::string_view data) {
  if (!file_) {
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') std::strcpy(host, "localhost");
    // The viewer reads the files of a folder in the order of their names, so the time comes first; a number
    // keeps two reporters of one second apart.
    for (int number = 0; !file_; ++number) {
      path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder_,
                          static_cast<int64_t>(wall_seconds()), host, ::getpid(), number);
      file_ = std::fopen(path_.c_str(), "wbx");
      require(file_ || errno == EEXIST, "[{}] cannot be opened for writing: {}", path_, std::strerror(errno));
    }
    const std::string version =
        frame_record(wire::real64(1, wall_seconds()) + wire::bytes(3, "brain.Event:2"));
    std::fwrite(version.data(), 1, version.size(), file_);
  }
  const std::string framed = frame_record(data);
  require(std::fwrite(framed.data(), 1, framed.size(), file_) == framed.size() && std::fflush(file_) == 0,
          "[{}] an event cannot be written: {}", path_, std::strerror(errno));
}

void TensorBoardReporter::event(int64_t step, std::string_view field) {
  record(wire::real64(1, wall_seconds()) + wire::integer(2, step) + std::string(field));
}

void TensorBoardReporter::start(const RunStart& run) {
  step_ = std::max<int64_t>(run.resumed_from_step, 0);
  if (run.resumed_from_step >= 0) event(step_ + 1, wire::bytes(7, wire::integer(1, 1)));  // SessionLog.START
}

void TensorBoardReporter::scalars(int64_t step, const NamedValues& values) {
  std::string summary;
  for (const auto& [tag, value] : values)
    summary += summary_value(tag, wire::real32(2, static_cast<float>(value)));
  if (!summary.empty()) event(step, wire::bytes(5, summary));
}

void TensorBoardReporter::step(const StepReport& report) {
  step_ = report.step;
  NamedValues values;
  for (const auto& [name, value] : report.losses) values.emplace_back("loss/" + name, value);
  for (const auto& [name, value] : report.gradient_norms) values.emplace_back("gradient_norm/" + name, value);
  for (const auto& [name, value] : report.learning_rates) values.emplace_back("learning_rate/" + name, value);
  values.emplace_back("time/step_seconds", report.seconds);
  values.emplace_back("time/data_wait_seconds", report.data_wait_seconds);
  values.emplace_back("time/items_per_second", report.items_per_second);
  values.emplace_back("health/skipped_total", static_cast<double>(report.skipped_total));
  scalars(report.step, values);
}

void TensorBoardReporter::validation(const ValidationReport& report) {
  NamedValues values;
  const std::string prefix = report.label.empty() ? "validation/" : "validation_" + report.label + "/";
  for (const auto& [name, value] : report.losses) values.emplace_back(prefix + name, value);
  scalars(report.step, values);
}

// Summary.Image: height 1, width 2, colorspace 3 (3: RGB), encoded_image_string 4.
void TensorBoardReporter::image(int64_t step, const std::string& tag, std::string_view png, int width,
                                int height) {
  const std::string content =
      wire::integer(1, height) + wire::integer(2, width) + wire::integer(3, 3) + wire::bytes(4, png);
  event(step, wire::bytes(5, summary_value(tag, wire::bytes(4, content))));
}

// Summary.Audio: sample_rate 1, num_channels 2, length_frames 3, encoded_audio_string 4, content_type 5.
void TensorBoardReporter::audio(int64_t step, const std::string& tag, std::string_view encoded,
                                const std::string& content_type, double rate_hz, int channels,
                                int64_t frames) {
  const std::string content = wire::real32(1, static_cast<float>(rate_hz)) + wire::integer(2, channels) +
                              wire::integer(3, frames) + wire::bytes(4, encoded) +
                              wire::bytes(5, content_type);
  event(step, wire::bytes(5, summary_value(tag, wire::bytes(6, content))));
}

void TensorBoardReporter::sample_written(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  const bool picture = ending == ".png";
  if (!picture && ending != ".flac" && ending != ".wav") return;
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (bytes.empty()) return;
  const std::string tag = (picture ? "pictures/" : "samples/") + fs::path(path).stem().string();
  if (picture) {
    const Image size = decode_png(bytes, path);
    image(step_, tag, bytes, size.width, size.height);
  } else {
    const AudioInfo info = probe_audio(path);
    audio(step_, tag, bytes, ending == ".wav" ? "audio/wav" : "audio/flac", info.rate_hz, info.channels,
          info.frames);
  }
}

void TensorBoardReporter::finished(const std::string&) {
  if (file_) std::fflush(file_);
}

}  // namespace melete
