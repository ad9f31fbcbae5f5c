#include "systems/musiclm/spec_augment.h"

#include <algorithm>
#include <cmath>

#include "config/schema.h"
#include "core/device.h"
#include "nn/draws.h"

namespace melete::musiclm {

namespace {

struct Span {
  at::Tensor first, end;  // [batch] int64
};

// A span of up to `widest` places out of `size` [batch], each row its own; empty where there is none.
// share [batch, 2]: where in the range of widths, and of places, it falls.
Span span(const at::Tensor& share, const at::Tensor& widest, const at::Tensor& size) {
  const at::Tensor width = share.select(1, 0) * widest;
  const at::Tensor first = (share.select(1, 1) * (size - width)).to(at::kLong);
  return {first, first + width.to(at::kLong)};
}

Span draw_span(const SpecAugmentConfig& config, const char* what, int64_t limit, const at::Tensor& size,
               Draws& draws) {
  if (limit < 1) return {at::zeros_like(size), at::zeros_like(size)};
  const at::Tensor places = size.to(at::kFloat);
  if (config.as_upstream) {
    const at::Tensor share = draws.uniform(what, {1, 2}).expand({size.size(0), 2});
    return span(share, at::full_like(places, static_cast<double>(limit)), places);
  }
  const at::Tensor share = draws.uniform(what, {size.size(0), 2});
  // One more than the widest, because what is cut off the drawn width is up to one.
  const at::Tensor widest =
      at::floor(places * config.largest_share).clamp_max(static_cast<double>(limit)) + 1;
  const at::Tensor width = at::floor(share.select(1, 0) * widest);
  const at::Tensor first = at::floor(share.select(1, 1) * (places - width + 1));
  return {first.to(at::kLong), (first + width).to(at::kLong)};
}

// Linear between frames; beyond the end there is silence. [batch, bins, frames] -> [batch, bins, new frames]
at::Tensor stretch(const at::Tensor& x, double speed, int64_t frames) {
  const auto options = x.options().requires_grad(false);
  const at::Tensor place = at::arange(frames, options.dtype(at::kDouble)) * speed;
  const at::Tensor before = at::floor(place).to(at::kLong);
  const at::Tensor share = (place - before).to(at::kFloat);
  const at::Tensor padded = at::constant_pad_nd(x, {0, 2});
  const at::Tensor left = padded.index_select(2, before), right = padded.index_select(2, before + 1);
  return at::lerp(left, right, share);
}

// True inside [first, end): [batch, size]
at::Tensor inside(const at::Tensor& first, const at::Tensor& end, int64_t size) {
  const at::Tensor place = at::arange(size, first.options()).unsqueeze(0);
  return place.ge(first.unsqueeze(1)).logical_and(place.lt(end.unsqueeze(1)));
}

}  // namespace

void describe(Schema& schema, SpecAugmentConfig& config) {
  schema.option("stretch", config.stretch, "speeds are drawn between this and one over this; 1: none")
      .at_least(0.1)
      .at_most(1);
  schema.option("frequency_mask", config.frequency_mask, "the widest band of bins that is blanked; 0: none")
      .at_least(0)
      .unit("bins");
  schema.option("time_mask", config.time_mask, "the longest stretch of frames that is blanked; 0: none")
      .at_least(0)
      .unit("frames");
  schema
      .option("largest_share", config.largest_share,
              "a mask covers at most this share of the bins, or of a recording's frames")
      .at_least(0)
      .at_most(1);
  schema.option("as_upstream", config.as_upstream,
                "musiclm-pytorch's way: no stretch, and masks that all rows share, however wide");
}

SpecAugmentation SpecAugmentation::rows(int64_t begin, int64_t end) const {
  const auto part = [&](const at::Tensor& all) { return all.slice(0, begin, end); };
  return {speed, part(first_bin), part(end_bin), part(first_frame), part(end_frame)};
}

int64_t stretched_frames(int64_t frames, double speed) {
  return std::min(frames, static_cast<int64_t>(std::ceil(static_cast<double>(frames) / speed)));
}

SpecAugmentation draw_augmentation(const SpecAugmentConfig& config, int64_t bins,
                                   const std::vector<int64_t>& frames, Draws& draws) {
  SpecAugmentation result;
  if (config.stretch < 1 && !config.as_upstream) {
    const double place = 2 * draws.uniform("time_stretch", {1}).item<double>() - 1;
    result.speed = std::pow(config.stretch, place);
  }
  std::vector<int64_t> left;
  for (const int64_t count : frames) left.push_back(stretched_frames(count, result.speed));
  const at::Tensor size = at::tensor(left, at::kLong);
  const Span band =
      draw_span(config, "frequency_mask", config.frequency_mask, at::full_like(size, bins), draws);
  const Span time = draw_span(config, "time_mask", config.time_mask, size, draws);
  result.first_bin = band.first;
  result.end_bin = band.end;
  result.first_frame = time.first;
  result.end_frame = time.end;
  return result;
}

at::Tensor augment(const at::Tensor& spectrogram, const SpecAugmentation& how) {
  at::Tensor x = spectrogram;
  if (how.speed != 1) x = stretch(x, how.speed, stretched_frames(x.size(2), how.speed));
  const at::Tensor blank_bins = inside(how.first_bin, how.end_bin, x.size(1)).unsqueeze(2);
  const at::Tensor blank_frames = inside(how.first_frame, how.end_frame, x.size(2)).unsqueeze(1);
  return x.masked_fill(sent_to(x.device(), blank_bins.logical_or(blank_frames)), 0);
}

}  // namespace melete::musiclm
