#include "losses/picture_quality.h"

#include <algorithm>

namespace melete {

namespace {

at::Tensor shown(const at::Tensor& x) {
  return x.detach().to(at::kFloat).clamp(0, 1);
}

// Weighted mean over a window, along rows and along columns. x [n, 1, height, width]
at::Tensor blurred(const at::Tensor& x) {
  constexpr double kDeviation = 1.5;
  at::Tensor result = x;
  for (const int64_t side : {int64_t{2}, int64_t{3}}) {
    const int64_t width = std::min<int64_t>(11, x.size(side) - (x.size(side) + 1) % 2);  // odd
    const at::Tensor offset = at::arange(width, x.options()) - static_cast<double>(width / 2);
    const at::Tensor weights = at::softmax(-offset.square() / (2 * kDeviation * kDeviation), 0);
    const at::Tensor kernel = side == 2 ? weights.view({1, 1, width, 1}) : weights.view({1, 1, 1, width});
    result = at::conv2d(result, kernel);
  }
  return result;
}

}  // namespace

at::Tensor psnr(const at::Tensor& real, const at::Tensor& fake) {
  const at::Tensor error = (shown(real) - shown(fake)).square().flatten(1).mean(1);
  return -10 * at::log10(at::clamp_min(error, 1e-10));
}

at::Tensor ssim(const at::Tensor& real, const at::Tensor& fake) {
  constexpr double kMeans = 0.01 * 0.01, kSpreads = 0.03 * 0.03;  // keep the two ratios away from 0 / 0
  const at::Tensor x = shown(real).flatten(0, 1).unsqueeze(1), y = shown(fake).flatten(0, 1).unsqueeze(1);
  const at::Tensor mean_x = blurred(x), mean_y = blurred(y);
  const at::Tensor variance_x = blurred(x * x) - mean_x.square(),
                   variance_y = blurred(y * y) - mean_y.square();
  const at::Tensor covariance = blurred(x * y) - mean_x * mean_y;
  const at::Tensor likeness =
      (2 * mean_x * mean_y + kMeans) * (2 * covariance + kSpreads) /
      ((mean_x.square() + mean_y.square() + kMeans) * (variance_x + variance_y + kSpreads));
  return likeness.view({real.size(0), -1}).mean(1);
}

}  // namespace melete
