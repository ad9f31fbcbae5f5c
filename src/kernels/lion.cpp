#include "kernels/lion.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Parallel.h>

#include "kernels/vector_targets.h"

namespace melete {

namespace {

struct Factors {
  float keep;   // 1 - learning_rate * weight_decay
  float scale;  // of the gradient
  float beta1, one_less_beta1;
  float beta2, one_less_beta2;
  float step;
};

MELETE_VECTOR_TARGETS
void update_range(float* __restrict p, const float* __restrict g, float* __restrict m, int64_t count,
                  const Factors& f) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.scale;
    const float direction = m[i] * f.beta1 + f.one_less_beta1 * gradient;
    // What is not a number stays so: its sign is itself.
    const float sign = direction > 0 ? 1.f : direction < 0 ? -1.f : direction;
    p[i] = p[i] * f.keep - f.step * sign;
    m[i] = m[i] * f.beta2 + f.one_less_beta2 * gradient;
  }
}

bool fits_loop(const at::Tensor& t, const at::Tensor& like) {
  return t.device().is_cpu() && t.scalar_type() == at::kFloat && t.is_non_overlapping_and_dense() &&
         t.sizes() == like.sizes() && t.strides() == like.strides();
}

}  // namespace

void lion_update(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& mean,
                 const LionSettings& settings) {
  if (!fits_loop(parameter, parameter) || !fits_loop(mean, parameter) || !fits_loop(gradient, parameter))
    return lion_update_plain(parameter, gradient, mean, settings);
  at::NoGradGuard no_gradient;
  Factors factors;
  factors.keep = static_cast<float>(1 - settings.learning_rate * settings.weight_decay);
  factors.scale = static_cast<float>(settings.gradient_scale);
  factors.beta1 = static_cast<float>(settings.beta1);
  factors.one_less_beta1 = static_cast<float>(1 - settings.beta1);
  factors.beta2 = static_cast<float>(settings.beta2);
  factors.one_less_beta2 = static_cast<float>(1 - settings.beta2);
  factors.step = static_cast<float>(settings.learning_rate);
  float* p = parameter.data_ptr<float>();
  const float* g = gradient.data_ptr<float>();
  float* m = mean.data_ptr<float>();
  at::parallel_for(0, parameter.numel(), 32768, [&](int64_t begin, int64_t end) {
    update_range(p + begin, g + begin, m + begin, end - begin, factors);
  });
}

void lion_update_plain(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& mean,
                       const LionSettings& settings) {
  at::NoGradGuard no_gradient;
  const at::Tensor scaled = gradient.detach().to(parameter.scalar_type()) * settings.gradient_scale;
  if (settings.weight_decay != 0) parameter.mul_(1 - settings.learning_rate * settings.weight_decay);
  const at::Tensor direction = (mean * settings.beta1).add_(scaled, 1 - settings.beta1);
  // sign() makes 0 of what is not a number.
  parameter.add_(at::where(direction.isnan(), direction, direction.sign()), -settings.learning_rate);
  mean.mul_(settings.beta2).add_(scaled, 1 - settings.beta2);
}

}  // namespace melete
