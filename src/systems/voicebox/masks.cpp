#include "systems/voicebox/masks.h"

#include "core/device.h"
#include "nn/draws.h"

namespace melete::voicebox {

namespace {

at::Tensor positions(int64_t frames, const at::Tensor& like) {
  return at::arange(frames, like.options().dtype(at::kLong)).unsqueeze(0);
}

}  // namespace

at::Tensor first_frames(const at::Tensor& lengths, int64_t frames) {
  return positions(frames, lengths) < lengths.unsqueeze(1);
}

at::Tensor row_lengths(const at::Tensor& valid, int64_t batch, int64_t frames, const at::Device& device) {
  return valid.defined() ? valid.sum(1)
                         : at::full({batch}, frames, at::TensorOptions(device).dtype(at::kLong));
}

at::Tensor span_mask(const at::Tensor& lengths, int64_t frames, double low, double high, Draws& draws) {
  const int64_t batch = lengths.size(0);
  const at::Tensor share =
      sent_to(lengths.device(), draws.uniform("mask_fraction", {batch}) * (high - low) + low);
  const at::Tensor hidden = (share.to(at::kFloat) * lengths).to(at::kLong);
  const at::Tensor place = sent_to(lengths.device(), draws.uniform("mask_start", {batch}));
  const at::Tensor start = ((lengths - hidden) * place).clamp_min(0);
  const at::Tensor at_frame = positions(frames, lengths);
  return at::logical_and(at_frame >= start.to(at::kLong).unsqueeze(1),
                         at_frame < (start + hidden).to(at::kLong).unsqueeze(1));
}

at::Tensor chance_mask(at::IntArrayRef shape, double probability, const char* what, Draws& draws) {
  if (probability <= 0 || probability >= 1)
    return at::full(shape, probability >= 1, at::TensorOptions().dtype(at::kBool));
  return draws.uniform(what, shape) < probability;
}

}  // namespace melete::voicebox
