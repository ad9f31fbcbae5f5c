#include "measure/machine_peak.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "core/engine.h"
#include "kernels/bf16_product.h"

namespace melete {

namespace {

// The best of several: what the machine can do, not what its neighbours leave of it.
double best_seconds(const std::function<void()>& run) {
  double best = INFINITY, spent = 0;
  for (int repeat = 0; repeat < 3 || (repeat < 30 && spent < 0.25); ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

double gflops(const std::function<void(const at::Tensor&, const at::Tensor&)>& product,
              at::ScalarType type = at::kFloat) {
  constexpr int64_t kSide = 1024;
  const at::Tensor a = at::randn({kSide, kSide}).to(type), b = at::randn({kSide, kSide}).to(type);
  return 2.0 * kSide * kSide * kSide / best_seconds([&] { product(a, b); }) * 1e-9;
}

double bf16_gflops() {
  const at::Tensor one = at::ones({1, 1});
  if (has_bf16_product(one, one))
    return gflops([](const auto& a, const auto& b) { bf16_rows_by_weight(a, b, {}); });
  return gflops([](const auto& a, const auto& b) { at::mm(a, b); }, at::kBFloat16);
}

double read_gb_per_second() {
  const at::Tensor values = at::ones({int64_t{16} << 20});
  return static_cast<double>(values.nbytes()) / best_seconds([&] { values.sum(); }) * 1e-9;
}

}  // namespace

MachinePeak measure_peak() {
  const at::NoGradGuard no_grad;
  MachinePeak peak;
  peak.threads = thread_count();
  peak.sgemm_gflops = gflops([](const auto& a, const auto& b) { at::mm(a, b); });
  peak.bf16_gflops = bf16_gflops();
  peak.read_gb_per_second = read_gb_per_second();
  return peak;
}

}  // namespace melete
