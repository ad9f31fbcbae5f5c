// What a run writes for a person to hear and see at one step, every item under its own name.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "run/pictures.h"
#include "run/reporter.h"

namespace melete {

class Batch;

// What samples of an item are called: its place in the batch, and its file's name where it has one.
std::string sample_name(const Batch& batch, int64_t row);

class SampleWriter {
 public:
  // Writes below <run_folder>/samples/step_... and <run_folder>/pictures/step_...; each path goes to
  // `reporter`.
  SampleWriter(std::string run_folder, int64_t step, Reporter& reporter);

  // Each returns the path. Names may hold anything: they are made fit for a file, and unique within the step.
  std::string audio(const std::string& name, std::span<const float> samples, int rate_hz);
  std::string audio(const std::string& name, const at::Tensor& samples,
                    int rate_hz);  // [samples] or [channels, samples]
  std::string spectrogram_pair(const std::string& name, std::span<const float> original,
                               std::span<const float> reconstruction, int rate_hz);
  std::string spectrogram_pair(const std::string& name, const at::Tensor& original,
                               const at::Tensor& reconstruction,
                               int rate_hz);  // as audio(); channels are averaged
  std::string picture(const std::string& name, const Image& image);
  std::string text(const std::string& name, const std::string& text);

  int64_t step() const { return step_; }

 private:
  std::string place(const char* kind, const std::string& name, const char* ending);

  std::string run_folder_;
  int64_t step_;
  Reporter& reporter_;
  std::set<std::string> taken_;
};

}  // namespace melete
