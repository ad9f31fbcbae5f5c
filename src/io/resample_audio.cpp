#include "io/resample_audio.h"

#include <vector>

#include "core/base/error.h"
#include "io/base/resample.h"

namespace melete {

at::Tensor resample_audio(const at::Tensor& audio, int64_t from_hz, int64_t to_hz) {
  require(from_hz > 0 && to_hz > 0, "[resample] expected rates above 0 Hz, got {} and {}", from_hz, to_hz);
  if (from_hz == to_hz) return audio;
  const Resampler resampler(static_cast<int>(from_hz), static_cast<int>(to_hz));
  std::vector<int64_t> shape = audio.sizes().vec();
  const at::Tensor rows = audio.detach().to(at::kCPU, at::kFloat).reshape({-1, audio.size(-1)}).contiguous();
  const int64_t samples = rows.size(1);
  shape.back() = resampler.output_frames(samples);
  at::Tensor result = at::empty({rows.size(0), shape.back()});
  for (int64_t i = 0; i < rows.size(0); ++i)
    resampler.run({rows.data_ptr<float>() + i * samples, static_cast<size_t>(samples)}, 0, 0,
                  {result.data_ptr<float>() + i * shape.back(), static_cast<size_t>(shape.back())});
  return result.reshape(shape).to(audio.device());
}

}  // namespace melete
