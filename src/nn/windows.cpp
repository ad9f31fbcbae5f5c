#include "nn/windows.h"

#include "core/base/error.h"

namespace melete {

at::Tensor centred_windows(const at::Tensor& audio, int64_t window, int64_t hop) {
  const int64_t frames = audio.size(1) / hop, around = window - hop;
  require(frames > 0, "[audio] expected at least {} samples, got {}", hop, audio.size(1));
  const int64_t both[] = {around / 2, around - around / 2};
  return at::constant_pad_nd(audio.narrow(1, 0, frames * hop).to(at::kFloat), both).unfold(1, window, hop);
}

}  // namespace melete
