#include "systems/voicebox/warped_distance.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "systems/voicebox/phoneme_frames.h"

namespace melete::voicebox {

double warped_distance(const at::Tensor& a, const at::Tensor& b) {
  require(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1) && a.size(0) > 0 && b.size(0) > 0,
          "[warped distance] expected frames of one width");
  const at::Tensor apart =
      (at::cdist(a.to(at::kFloat).unsqueeze(0), b.to(at::kFloat).unsqueeze(0), 1)[0] / a.size(1))
          .contiguous();
  const int64_t n = apart.size(0), m = apart.size(1);
  struct Cell {
    double sum = std::numeric_limits<double>::infinity();
    int64_t steps = 0;
  };
  std::vector<Cell> row(static_cast<size_t>(m + 1)), before = row;
  before[0].sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    row[0] = {};
    for (int64_t j = 0; j < m; ++j) {
      const auto at = static_cast<size_t>(j);
      const auto nearer = [](const Cell& x, const Cell& y) { return x.sum < y.sum; };
      const Cell best = std::min({before[at], before[at + 1], row[at]}, nearer);
      row[at + 1] = {best.sum + apart.data_ptr<float>()[i * m + j], best.steps + 1};
    }
    std::swap(row, before);
  }
  const Cell& end = before[static_cast<size_t>(m)];
  return end.sum / static_cast<double>(end.steps);
}

double warped_mel_distance(const at::Tensor& a, const at::Tensor& b) {
  MelFramesConfig config;
  config.rate_hz = 16000;
  config.mels = 40;
  const MelFrames mel(config);
  const auto frames = [&](const at::Tensor& wave) {
    return aligner_frames(mel, wave.unsqueeze(0), at::full({1}, wave.size(0), at::kLong)).frames[0];
  };
  return warped_distance(frames(a), frames(b));
}

}  // namespace melete::voicebox
