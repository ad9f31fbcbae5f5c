// What a run writes for a person to hear and see at one step, every item under its own name.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "run/alarms.h"
#include "run/pictures.h"
#include "run/reporter.h"

namespace melete {

class Batch;

// What samples of an item are called: its place in the batch, and its file's name where it has one.
std::string sample_name(const Batch& batch, int64_t row);

class SampleWriter {
 public:
  // Writes below <run_folder>/samples/step_... and <run_folder>/pictures/step_...; each path goes to
  // `reporter`, and to `alarms` what is plainly wrong with a sample: silent, clipped, constant, of one
  // colour.
  SampleWriter(std::string run_folder, int64_t step, Reporter& reporter, Alarms* alarms = nullptr);

  // Each returns the path. Names may hold anything: they are made fit for a file, and unique within the step.
  std::string audio(const std::string& name, std::span<const float> samples, int rate_hz);
  std::string audio(const std::string& name, const at::Tensor& samples,
                    int rate_hz);  // [samples] or [channels, samples]
  // The recording that samples whose names begin with `name` were made from: written once, as name_original;
  // what is wrong with it is no fault of theirs.
  std::string original(const std::string& name, const at::Tensor& samples, int rate_hz, bool write = true);
  std::string spectrogram_pair(const std::string& name, std::span<const float> original,
                               std::span<const float> reconstruction, int rate_hz);
  std::string spectrogram_pair(const std::string& name, const at::Tensor& original,
                               const at::Tensor& reconstruction,
                               int rate_hz);  // as audio(); channels are averaged
  std::string picture(const std::string& name, const Image& image);
  // Two a row: what was given and what was made of it. Both [items, channels, height, width] in [0, 1].
  std::string picture_pairs(const std::string& name, const at::Tensor& given, const at::Tensor& made);
  // What was made of nothing that could stand beside it, as a square of pictures.
  std::string pictures(const std::string& name, const at::Tensor& made);
  std::string text(const std::string& name, const std::string& text);

  // Something else that a task sees to be wrong; said once.
  void alarm(const std::string& kind, const std::string& text);

  int64_t step() const { return step_; }

 private:
  std::string place(const char* kind, const std::string& name, const char* ending);
  std::string write_sound(const std::string& name, std::span<const float> interleaved, int rate_hz,
                          int channels);
  void judge_pictures(const std::string& name, const at::Tensor& made);
  void judge_sound(const std::string& name, std::span<const float> samples);

  std::string run_folder_;
  int64_t step_;
  Reporter& reporter_;
  Alarms* alarms_;
  std::map<std::string, std::string> faults_of_originals_;  // by name
  std::set<std::string> taken_;
};

}  // namespace melete
