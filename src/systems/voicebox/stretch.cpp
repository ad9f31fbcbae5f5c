#include "systems/voicebox/stretch.h"

namespace melete::voicebox {

namespace {

struct Places {
  at::Tensor left, right;  // int64 [batch, frames]
  at::Tensor share;        // of the right one, float32 [batch, frames]
};

// Frame j stands at (j + 1/2) * from / to - 1/2 of the source, as interpolation without aligned corners has
// it.
Places places(const at::Tensor& from, const at::Tensor& to, int64_t frames) {
  const at::Tensor scale = from.to(at::kFloat) / to.clamp_min(1).to(at::kFloat);
  const at::Tensor centre = at::arange(frames, from.options().dtype(at::kFloat)) + 0.5;
  const at::Tensor at_source = (scale.unsqueeze(1) * centre - 0.5).clamp_min(0);
  const at::Tensor last = (from - 1).clamp_min(0).unsqueeze(1);
  const at::Tensor left = at::minimum(at_source.to(at::kLong), last);
  const at::Tensor share = (at_source - left).clamp(0, 1);
  return {left, at::minimum(left + 1, last), share};
}

}  // namespace

at::Tensor stretch(const at::Tensor& x, const at::Tensor& from_lengths, const at::Tensor& to_lengths,
                   int64_t frames) {
  const Places at_frame = places(from_lengths, to_lengths, frames);
  const auto take = [&](const at::Tensor& index) {
    return x.gather(1, index.unsqueeze(2).expand({-1, -1, x.size(2)}));
  };
  const at::Tensor share = at_frame.share.unsqueeze(2);
  return take(at_frame.left) * (1 - share) + take(at_frame.right) * share;
}

at::Tensor stretch_tokens(const at::Tensor& tokens, const at::Tensor& from_lengths,
                          const at::Tensor& to_lengths, int64_t frames) {
  const Places at_frame = places(from_lengths, to_lengths, frames);
  const at::Tensor nearest = at::where(at_frame.share < 0.5, at_frame.left, at_frame.right);
  const at::Tensor after = at::arange(frames, tokens.options()) >= to_lengths.unsqueeze(1);
  return tokens.gather(1, nearest).masked_fill(after, -1);
}

at::Tensor stretch_mask(const at::Tensor& mask, int64_t frames) {
  const at::Tensor from = at::full({mask.size(0)}, mask.size(1), mask.options().dtype(at::kLong));
  const at::Tensor values = mask.to(at::kFloat).unsqueeze(2);
  return stretch(values, from, at::full_like(from, frames), frames).squeeze(2) > 0;
}

}  // namespace melete::voicebox
