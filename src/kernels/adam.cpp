#include "kernels/adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "core/base/error.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

struct Factors {
  float keep;   // 1 - learning_rate * weight_decay
  float scale;  // of the gradient
  float beta1, one_less_beta1;
  float beta2, one_less_beta2;
  float root_correction2;  // sqrt(1 - beta2^step)
  float eps;
  float step_size;  // learning_rate / (1 - beta1^step), negative
};

Factors factors_of(const AdamSettings& s) {
  const double correction1 = 1 - std::pow(s.beta1, static_cast<double>(s.step));
  const double correction2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  Factors f;
  f.keep = static_cast<float>(1 - s.learning_rate * s.weight_decay);
  f.scale = static_cast<float>(s.gradient_scale);
  f.beta1 = static_cast<float>(s.beta1);
  f.one_less_beta1 = static_cast<float>(1 - s.beta1);
  f.beta2 = static_cast<float>(s.beta2);
  f.one_less_beta2 = static_cast<float>(1 - s.beta2);
  f.root_correction2 = static_cast<float>(std::sqrt(correction2));
  f.eps = static_cast<float>(s.eps);
  f.step_size = static_cast<float>(-s.learning_rate / correction1);
  return f;
}

MELETE_VECTOR_TARGETS
void update_range(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
                  int64_t count, const Factors& f) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.scale;
    const float first = m[i] * f.beta1 + f.one_less_beta1 * gradient;
    const float second = v[i] * f.beta2 + f.one_less_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    const float denominator = std::sqrt(second) / f.root_correction2 + f.eps;
    p[i] = p[i] * f.keep + f.step_size * first / denominator;
  }
}

bool fits_loop(const at::Tensor& t) {
  return t.device().is_cpu() && t.scalar_type() == at::kFloat && t.is_non_overlapping_and_dense();
}

}  // namespace

void adam_update(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& first_moment,
                 at::Tensor& second_moment, const AdamSettings& settings) {
  require(settings.step >= 1, "[adam] expected a step of at least 1, got {}", settings.step);
  // The loop walks memory, so the four must lie in memory alike; a gradient that does not is laid out anew.
  const bool alike = fits_loop(parameter) && fits_loop(first_moment) && fits_loop(second_moment) &&
                     gradient.device().is_cpu() && gradient.layout() == at::kStrided &&
                     first_moment.strides() == parameter.strides() &&
                     second_moment.strides() == parameter.strides();
  if (!alike) return adam_update_plain(parameter, gradient, first_moment, second_moment, settings);
  at::NoGradGuard no_gradient;
  at::Tensor laid_out = gradient;
  if (gradient.scalar_type() != at::kFloat || gradient.strides() != parameter.strides() ||
      gradient.sizes() != parameter.sizes()) {
    laid_out =
        at::empty_strided(parameter.sizes(), parameter.strides(), parameter.options().requires_grad(false));
    laid_out.copy_(gradient);
  }
  const Factors factors = factors_of(settings);
  float* p = parameter.data_ptr<float>();
  const float* g = laid_out.data_ptr<float>();
  float* m = first_moment.data_ptr<float>();
  float* v = second_moment.data_ptr<float>();
  at::parallel_for(0, parameter.numel(), 32768, [&](int64_t begin, int64_t end) {
    update_range(p + begin, g + begin, m + begin, v + begin, end - begin, factors);
  });
}

void adam_update_plain(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& first_moment,
                       at::Tensor& second_moment, const AdamSettings& settings) {
  at::NoGradGuard no_gradient;
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(settings.step));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(settings.step));
  const at::Tensor scaled = gradient.detach().to(parameter.scalar_type()) * settings.gradient_scale;
  if (settings.weight_decay != 0) parameter.mul_(1 - settings.learning_rate * settings.weight_decay);
  first_moment.mul_(settings.beta1).add_(scaled, 1 - settings.beta1);
  second_moment.mul_(settings.beta2).addcmul_(scaled, scaled, 1 - settings.beta2);
  const at::Tensor denominator = (second_moment.sqrt() / std::sqrt(correction2)).add_(settings.eps);
  parameter.addcdiv_(first_moment, denominator, -settings.learning_rate / correction1);
}

}  // namespace melete
