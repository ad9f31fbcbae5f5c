// Metrics in files: metrics.jsonl for people and scripts, TensorBoard event files for its viewer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "run/reporter.h"

namespace melete {

// Appends one JSON object a line and flushes it. Every row has "kind" and "step":
//   {"kind":"step","step":7,"losses":{...},"gradient_norms":{...},"learning_rates":{...},"seconds":...}
// and likewise start, validation, saved, sample, note, warning, finished. A number that is not finite is the
// string "nan", "inf" or "-inf", because JSON has no word for it.
class JsonlReporter : public Reporter {
 public:
  explicit JsonlReporter(const std::string& path);
  ~JsonlReporter() override;

  void start(const RunStart& run) override;
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void saved(const std::string& path, int64_t step) override;
  void sample_written(const std::string& path) override;
  void note(const std::string& text) override;
  void warning(const std::string& text) override;
  void finished(const std::string& reason) override;

 private:
  void row(const std::string& json_line);

  std::string path_;
  int descriptor_ = -1;
  int64_t step_ = 0;
};

// Writes events.out.tfevents.<time>.<host>.<pid> in `folder`; the file is made at the first event. A resumed
// run opens with a session start, which makes TensorBoard drop the points of the lost steps.
class TensorBoardReporter : public Reporter {
 public:
  explicit TensorBoardReporter(std::string folder);
  ~TensorBoardReporter() override;

  void start(const RunStart& run) override;
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void sample_written(const std::string& path) override;  // PNG files become images, WAV and FLAC files audio
  void finished(const std::string& reason) override;

  void scalars(int64_t step, const NamedValues& values);
  void image(int64_t step, const std::string& tag, std::string_view png, int width, int height);
  void audio(int64_t step, const std::string& tag, std::string_view encoded, const std::string& content_type,
             double rate_hz, int channels, int64_t frames);
  const std::string& path() const { return path_; }

 private:
  void event(int64_t step, std::string_view field);  // `field`: an encoded oneof of the Event message
  void record(std::string_view data);

  std::string folder_, path_;
  std::FILE* file_ = nullptr;
  int64_t step_ = 0;
};

// TFRecord framing: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string frame_record(std::string_view data);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace melete
