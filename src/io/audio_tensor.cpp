#include "io/audio_tensor.h"

#include <filesystem>

#include "io/base/audio_file.h"
#include "io/resample_audio.h"

namespace melete {

at::Tensor read_mono(const std::string& path, int64_t rate_hz, double seconds) {
  const int64_t frames = seconds > 0 ? static_cast<int64_t>(seconds * probe_audio(path).rate_hz) : -1;
  const Audio audio = read_audio(path, 0, frames);
  return resample_audio(at::tensor(downmix(audio), at::kFloat).unsqueeze(0), audio.rate_hz, rate_hz)[0];
}

std::vector<float> wave_samples(const at::Tensor& wave) {
  const at::Tensor plain = wave.detach().to(at::kCPU, at::kFloat).contiguous();
  return {plain.data_ptr<float>(), plain.data_ptr<float>() + plain.numel()};
}

void write_wave(const std::string& path, const at::Tensor& wave, int64_t rate_hz) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  write_audio(path, wave_samples(wave), static_cast<int>(rate_hz));
}

}  // namespace melete
