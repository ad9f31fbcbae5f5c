#include "run/sample_writer.h"

#include <filesystem>

#include "core/base/error.h"
#include "data/batch.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "run/run_folder.h"

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

SampleWriter::SampleWriter(std::string run_folder, int64_t step, Reporter& reporter)
    : run_folder_(std::move(run_folder)), step_(step), reporter_(reporter) {}

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

std::string SampleWriter::audio(const std::string& name, std::span<const float> samples, int rate_hz) {
  const std::string path = place("samples", name, ".flac");
  write_audio(path, audible(samples.data(), static_cast<int64_t>(samples.size())), rate_hz, 1);
  reporter_.sample_written(path);
  return path;
}

std::string SampleWriter::audio(const std::string& name, const at::Tensor& samples, int rate_hz) {
  const at::Tensor channels = as_channels(samples, name);
  const at::Tensor interleaved = channels.t().contiguous();
  const std::string path = place("samples", name, ".flac");
  write_audio(path, audible(interleaved.data_ptr<float>(), interleaved.numel()), rate_hz,
              static_cast<int>(channels.size(0)));
  reporter_.sample_written(path);
  return path;
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

std::string SampleWriter::text(const std::string& name, const std::string& text) {
  const std::string path = place("samples", name, ".txt");
  AtomicFile file(path);
  file.write(text);
  file.commit();
  reporter_.sample_written(path);
  return path;
}

}  // namespace melete
