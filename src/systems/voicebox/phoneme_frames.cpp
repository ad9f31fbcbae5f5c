#include "systems/voicebox/phoneme_frames.h"

#include <algorithm>

#include "core/device.h"
#include "systems/voicebox/masks.h"

namespace melete::voicebox {

namespace {

constexpr double kFloor = -9;  // of the logarithm of a band: below it is silence, whatever made it

}  // namespace

at::Tensor ids_by_frame(const std::vector<int64_t>& ids, const std::vector<int64_t>& counts) {
  return at::repeat_interleave(at::tensor(ids, at::kLong), at::tensor(counts, at::kLong));
}

AlignerFrames aligner_frames(const MelFrames& mel, const at::Tensor& waves, const at::Tensor& samples) {
  const at::Tensor bands = mel(waves).clamp_min(kFloor);
  const int64_t frames = bands.size(1);
  AlignerFrames result;
  const at::Tensor known = samples.to(at::kCPU, at::kLong).contiguous();
  result.lengths = at::empty_like(known);
  for (int64_t i = 0; i < known.numel(); ++i)
    result.lengths.data_ptr<int64_t>()[i] =
        std::clamp<int64_t>(mel.frames(known.data_ptr<int64_t>()[i]), 1, frames);
  const at::Tensor there = first_frames(sent_to(bands.device(), result.lengths), frames).unsqueeze(2);
  const at::Tensor values = there.sum({1, 2}, true) * bands.size(2);
  const auto mean = [&](const at::Tensor& x) { return (x * there).sum({1, 2}, true) / values; };
  const at::Tensor centred = bands - mean(bands);
  result.frames = centred / mean(centred.square()).sqrt().clamp_min(1e-3) * there;
  return result;
}

}  // namespace melete::voicebox
