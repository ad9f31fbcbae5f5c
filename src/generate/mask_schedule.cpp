#include "generate/mask_schedule.h"

#include <algorithm>
#include <numbers>

#include "core/base/error.h"

namespace melete {

const std::vector<std::string>& mask_schedule_names() {
  static const std::vector<std::string> names = {"cosine", "linear", "square", "cubic", "root", "arccos"};
  return names;
}

at::Tensor mask_share(const std::string& schedule, const at::Tensor& t) {
  constexpr double pi = std::numbers::pi;
  if (schedule == "cosine") return at::cos(t * pi * 0.5);
  if (schedule == "linear") return 1 - t;
  if (schedule == "square") return 1 - t.square();
  if (schedule == "cubic") return 1 - t * t.square();
  if (schedule == "root") return 1 - at::sqrt(t);
  if (schedule == "arccos") return at::acos(t) / (pi * 0.5);
  fail("[mask schedule] expected one of cosine, linear, square, cubic, root, arccos, got {}", schedule);
}

// All of them fall, so halving an interval finds it.
double mask_time(const std::string& schedule, double share) {
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    const double there = mask_share(schedule, at::scalar_tensor(middle, at::kDouble)).item<double>();
    (there > share ? low : high) = middle;
  }
  return std::clamp((low + high) / 2, 0.0, 1.0);
}

}  // namespace melete
