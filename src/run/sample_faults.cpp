#include "run/sample_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace melete {

namespace {

constexpr double kSilentRms = 1e-4;       // 80 dB below full scale
constexpr float kConstantSpread = 1e-4f;  // between the lowest and the highest sample
constexpr float kFullScale = 0.999f;
constexpr double kClippedShare = 0.01;     // of the samples at full scale; recordings have far fewer
constexpr double kOneColourSpread = 0.01;  // deviation of pixels

}  // namespace

std::string fault_of_sound(std::span<const float> samples) {
  if (samples.empty()) return "";
  float low = samples.front(), high = samples.front();
  double power = 0;
  size_t clipped = 0;
  for (const float value : samples) {
    if (!std::isfinite(value)) return "not finite";
    low = std::min(low, value);
    high = std::max(high, value);
    power += static_cast<double>(value) * static_cast<double>(value);
    clipped += std::abs(value) >= kFullScale ? 1 : 0;
  }
  const auto count = static_cast<double>(samples.size());
  if (std::sqrt(power / count) < kSilentRms) return "silent";
  if (high - low < kConstantSpread) return "constant";
  const double share = static_cast<double>(clipped) / count;
  return share > kClippedShare ? fmt::format("clipped ({:.0f} % of it)", 100 * share) : "";
}

std::string fault_of_pictures(const at::Tensor& pictures) {
  const at::Tensor values = pictures.detach().to(at::kCPU, at::kFloat);
  if (values.numel() == 0) return "";
  if (!values.isfinite().all().item<bool>()) return "not finite";
  // Deviation of each channel's pixels: over all pictures, and within each.
  const auto spread = [](const at::Tensor& pixels) {  // [..., pixels] -> the largest of all rows
    return (pixels - pixels.mean(-1, true)).square().mean(-1).sqrt().max().item<double>();
  };
  if (spread(values.transpose(0, 1).flatten(1)) < kOneColourSpread)
    return values.size(0) > 1 ? "of one colour, all of them the same" : "of one colour";
  return spread(values.flatten(2)) < kOneColourSpread ? "each of one colour" : "";
}

}  // namespace melete
