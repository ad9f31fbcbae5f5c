#include "nn/lapped.h"

#include <cmath>

#include "core/autocast.h"
#include "core/base/error.h"
#include "core/device.h"

namespace melete {

namespace {

constexpr double kSoft = 0.02;  // where compress() turns from a root to a line

}  // namespace

LappedTransform::LappedTransform(int64_t hop) : hop_(hop) {
  require(hop >= 2 && hop % 2 == 0, "[lapped transform] expected an even hop of at least 2 samples, got {}",
          hop);
  const double length = static_cast<double>(hop);
  const at::Tensor n = at::arange(2 * hop, at::kDouble).unsqueeze(1),
                   k = at::arange(hop, at::kDouble).unsqueeze(0);
  const at::Tensor window = at::sin(M_PI * (n + 0.5) / (2 * length)) * std::sqrt(2 / length);
  const at::Tensor angle = (M_PI / length) * (n + 0.5 + length / 2) * (k + 0.5);
  basis_ = at::cat({window * at::cos(angle), window * at::sin(angle)}, 1).to(at::kFloat).contiguous();
}

LappedTransform::Frames LappedTransform::analyse(const at::Tensor& wave) const {
  require(wave.dim() == 2 && wave.size(1) % hop_ == 0 && wave.size(1) >= 2 * hop_,
          "[lapped transform] expected [rows, at least 2 hops of {} samples], got {} samples", hop_,
          wave.size(-1));
  const AutocastScope float32(wave.device().type(), false);  // a transform, not a layer
  const at::Tensor both = at::matmul(wave.unfold(1, 2 * hop_, hop_), sent_to(wave.device(), basis_));
  return {both.narrow(2, 0, hop_), both.narrow(2, hop_, hop_)};
}

at::Tensor LappedTransform::synthesise(const at::Tensor& cosines, at::Tensor* last_half) const {
  const int64_t rows = cosines.size(0), frames = cosines.size(1);
  const AutocastScope float32(cosines.device().type(), false);
  const at::Tensor wide =
      at::matmul(in_float(cosines),
                 sent_to(cosines.device(), basis_).narrow(1, 0, hop_).t());  // [rows, frames, 2 * hop]
  const at::Tensor ends = wide.narrow(2, hop_, hop_);
  at::Tensor before = last_half != nullptr && last_half->defined()
                          ? last_half->unsqueeze(1)
                          : at::zeros({rows, 1, hop_}, wide.options());
  if (last_half != nullptr) *last_half = ends.select(1, frames - 1).contiguous();
  const at::Tensor earlier = at::cat({before, ends.narrow(1, 0, frames - 1)}, 1);
  return (wide.narrow(2, 0, hop_) + earlier).flatten(1);
}

at::Tensor compress(const at::Tensor& x) {
  // The inverse of y (|y| + kSoft)
  const at::Tensor size = x.abs();
  return x.sign() * (at::sqrt(size + kSoft * kSoft / 4) - kSoft / 2);
}

at::Tensor expand(const at::Tensor& x) {
  return x * (x.abs() + kSoft);
}

}  // namespace melete
