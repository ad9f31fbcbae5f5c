#include "run/sample_writer.h"

#include <filesystem>

#include "core/base/error.h"
#include "data/batch.h"
#include "data/pictures.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "run/run_folder.h"
#include "run/sample_faults.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

// [samples] or [channels, samples], on any device -> float32 [channels, samples] on the CPU
at::Tensor as_channels(const at::Tensor& samples, const std::string& name) {
  require(samples.defined() && (samples.dim() == 1 || samples.dim() == 2) && samples.numel() > 0,
          "[sample {}] expected [samples] or [channels, samples], got {} dimensions and {} values", name,
          samples.defined() ? samples.dim() : 0, samples.defined() ? samples.numel() : 0);
  const at::Tensor plain = samples.detach().to(at::kCPU, at::kFloat);
  return (plain.dim() == 1 ? plain.unsqueeze(0) : plain).contiguous();
}

// A model in its first steps may give numbers that no audio file can hold; a person should still hear the
// rest.
std::vector<float> audible(const float* data, int64_t count) {
  std::vector<float> result(data, data + count);
  for (float& value : result) {
    if (!(value >= -1.0f)) value = value < -1.0f ? -1.0f : 0.0f;  // NaN becomes silence
    if (value > 1.0f) value = 1.0f;
  }
  return result;
}

std::string file_name(const std::string& name) {
  std::string result;
  for (const char c : name.substr(0, 120)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || (c == '.' && !result.empty());
    result += plain ? c : '_';
  }
  return result.empty() ? "sample" : result;
}

}  // namespace

std::string sample_name(const Batch& batch, int64_t row) {
  const std::vector<std::string> paths = batch.find_words("path");
  const auto at = static_cast<size_t>(row);
  return fmt::format("{}_{}", row,
                     at < paths.size() ? std::filesystem::path(paths[at]).stem().string() : "item");
}

SampleWriter::SampleWriter(std::string run_folder, int64_t step, Reporter& reporter, Alarms* alarms)
    : run_folder_(std::move(run_folder)), step_(step), reporter_(reporter), alarms_(alarms) {}

std::string SampleWriter::place(const char* kind, const std::string& name, const char* ending) {
  const fs::path folder = fs::path(run_folder_) / kind / step_name(step_);
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "[sample {}] the folder {} cannot be made: {}", name, folder.string(), error.message());
  const std::string base = (folder / file_name(name)).string();
  std::string path = base + ending;
  for (int number = 2; !taken_.insert(path).second; ++number)
    path = fmt::format("{}-{}{}", base, number, ending);
  return path;
}

std::string SampleWriter::write_sound(const std::string& name, std::span<const float> interleaved,
                                      int rate_hz, int channels) {
  const std::string path = place("samples", name, ".flac");
  write_audio(path, audible(interleaved.data(), static_cast<int64_t>(interleaved.size())), rate_hz, channels);
  reporter_.sample_written(path);
  return path;
}

void SampleWriter::alarm(const std::string& kind, const std::string& text) {
  if (alarms_) alarms_->say(kind, text);
}

void SampleWriter::judge_sound(const std::string& name, std::span<const float> samples) {
  const std::string fault = fault_of_sound(samples);
  if (fault.empty()) return;
  for (const auto& [original, own_fault] : faults_of_originals_)
    if (!own_fault.empty() && name.starts_with(original)) return;  // it is as it was given
  const std::string kind = fault.substr(0, fault.find(' '));
  alarm("sound " + kind,
        fmt::format("the sample {} of step {} is {}; if that stays so, the model does not learn: look at the "
                    "samples and at what it is trained on",
                    name, step_, fault));
}

std::string SampleWriter::audio(const std::string& name, std::span<const float> samples, int rate_hz) {
  judge_sound(name, samples);
  return write_sound(name, samples, rate_hz, 1);
}

std::string SampleWriter::audio(const std::string& name, const at::Tensor& samples, int rate_hz) {
  const at::Tensor channels = as_channels(samples, name);
  const at::Tensor interleaved = channels.t().contiguous();
  const std::span<const float> values(interleaved.data_ptr<float>(),
                                      static_cast<size_t>(interleaved.numel()));
  judge_sound(name, values);
  return write_sound(name, values, rate_hz, static_cast<int>(channels.size(0)));
}

std::string SampleWriter::original(const std::string& name, const at::Tensor& samples, int rate_hz,
                                   bool write) {
  const at::Tensor channels = as_channels(samples, name);
  const at::Tensor interleaved = channels.t().contiguous();
  const std::span<const float> values(interleaved.data_ptr<float>(),
                                      static_cast<size_t>(interleaved.numel()));
  const std::string fault = fault_of_sound(values);
  faults_of_originals_[name] = fault;
  if (!fault.empty())
    alarm("original " + fault.substr(0, fault.find(' ')),
          fmt::format("the recording {} that the run is validated on is {}: look at the data (`melete data "
                      "check`)",
                      name, fault));
  return write ? write_sound(name + "_original", values, rate_hz, static_cast<int>(channels.size(0))) : "";
}

std::string SampleWriter::spectrogram_pair(const std::string& name, std::span<const float> original,
                                           std::span<const float> reconstruction, int rate_hz) {
  return picture(name, melete::spectrogram_pair(name + ", step " + std::to_string(step_), original,
                                                reconstruction, rate_hz));
}

std::string SampleWriter::spectrogram_pair(const std::string& name, const at::Tensor& original,
                                           const at::Tensor& reconstruction, int rate_hz) {
  const at::Tensor first = as_channels(original, name).mean(0).contiguous();
  const at::Tensor second = as_channels(reconstruction, name).mean(0).contiguous();
  return spectrogram_pair(name, {first.data_ptr<float>(), static_cast<size_t>(first.numel())},
                          {second.data_ptr<float>(), static_cast<size_t>(second.numel())}, rate_hz);
}

std::string SampleWriter::picture(const std::string& name, const Image& image) {
  const std::string path = place("pictures", name, ".png");
  write_png(path, image);
  reporter_.sample_written(path);
  return path;
}

void SampleWriter::judge_pictures(const std::string& name, const at::Tensor& made) {
  const std::string fault = fault_of_pictures(made);
  if (fault.empty()) return;
  alarm("pictures " + fault, fmt::format("the samples {} of step {} are {}; if that stays so, the model does "
                                         "not learn: look at the samples and at what it is trained on",
                                         name, step_, fault));
}

std::string SampleWriter::pictures(const std::string& name, const at::Tensor& made) {
  judge_pictures(name, made);
  int64_t columns = 1;
  while (columns * columns < made.size(0)) ++columns;
  return picture(name, picture_grid(made.to(at::kCPU, at::kFloat).clamp(0, 1).unbind(0), columns));
}

std::string SampleWriter::picture_pairs(const std::string& name, const at::Tensor& given,
                                        const at::Tensor& made) {
  if (fault_of_pictures(given).empty()) judge_pictures(name, made);
  std::vector<at::Tensor> pictures;
  for (int64_t i = 0; i < made.size(0); ++i) {
    pictures.push_back(given[i].to(at::kCPU, at::kFloat).clamp(0, 1));
    pictures.push_back(made[i].to(at::kCPU, at::kFloat).clamp(0, 1));
  }
  return picture(name, picture_grid(pictures, 2));
}

std::string SampleWriter::text(const std::string& name, const std::string& text) {
  const std::string path = place("samples", name, ".txt");
  AtomicFile file(path);
  file.write(text);
  file.commit();
  reporter_.sample_written(path);
  return path;
}

}  // namespace melete
