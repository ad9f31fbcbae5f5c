#include "kernels/mod_relu.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>

#include <cmath>

#include "kernels/vector_targets.h"

namespace melete {

namespace {

// The loops work on rows of `channels` real parts followed by as many imaginary ones (channels-last memory).

template <class T>
inline __attribute__((always_inline)) void forward_rows(const T* x, T* y, int64_t rows, int64_t channels,
                                                        float bias) {
  for (int64_t row = 0; row < rows; ++row) {
    const T *re = x + 2 * row * channels, *im = re + channels;
    T *out_re = y + 2 * row * channels, *out_im = out_re + channels;
    for (int64_t i = 0; i < channels; ++i) {
      const float a = static_cast<float>(re[i]), b = static_cast<float>(im[i]);
      const float magnitude = std::sqrt(a * a + b * b);
      const float kept = std::max(magnitude + bias, 0.f);
      const bool zero = magnitude == 0;
      const float scale = kept / (zero ? 1.f : magnitude);
      out_re[i] = static_cast<T>(zero ? kept : a * scale);
      out_im[i] = static_cast<T>(b * scale);
    }
  }
}

// Returns the sum of the bias gradient.
template <class T>
inline __attribute__((always_inline)) double backward_rows(const T* gradient, const T* x, T* result,
                                                           int64_t rows, int64_t channels, float bias) {
  double total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const T *re = x + 2 * row * channels, *im = re + channels;
    const T *g_re = gradient + 2 * row * channels, *g_im = g_re + channels;
    T *out_re = result + 2 * row * channels, *out_im = out_re + channels;
    float row_total = 0;
#pragma omp simd reduction(+ : row_total)
    for (int64_t i = 0; i < channels; ++i) {
      const float a = static_cast<float>(re[i]), b = static_cast<float>(im[i]);
      const float ga = static_cast<float>(g_re[i]), gb = static_cast<float>(g_im[i]);
      const float magnitude = std::sqrt(a * a + b * b);
      const bool zero = magnitude == 0;
      const float inverse = zero ? 0.f : 1.f / (zero ? 1.f : magnitude);
      const float ua = a * inverse, ub = b * inverse;
      const float kept = magnitude + bias;
      const float active = kept > 0 ? 1.f : 0.f;
      const float scale = active * kept * inverse;
      const float along = ga * ua + gb * ub;
      const float turn = active * along - scale * along;
      out_re[i] = static_cast<T>(turn * ua + scale * ga);
      out_im[i] = static_cast<T>(turn * ub + scale * gb);
      row_total += active * (zero ? ga : along);
    }
    total += static_cast<double>(row_total);
  }
  return total;
}

MELETE_VECTOR_TARGETS void forward_float(const float* x, float* y, int64_t rows, int64_t channels,
                                         float bias) {
  forward_rows(x, y, rows, channels, bias);
}
MELETE_VECTOR_TARGETS void forward_bfloat(const at::BFloat16* x, at::BFloat16* y, int64_t rows,
                                          int64_t channels, float bias) {
  forward_rows(x, y, rows, channels, bias);
}
MELETE_VECTOR_TARGETS double backward_float(const float* g, const float* x, float* r, int64_t rows,
                                            int64_t channels, float bias) {
  return backward_rows(g, x, r, rows, channels, bias);
}
MELETE_VECTOR_TARGETS double backward_bfloat(const at::BFloat16* g, const at::BFloat16* x, at::BFloat16* r,
                                             int64_t rows, int64_t channels, float bias) {
  return backward_rows(g, x, r, rows, channels, bias);
}

at::Tensor channels_last(const at::Tensor& x) {
  return x.contiguous(at::MemoryFormat::ChannelsLast);
}

constexpr int64_t kRowsPerTask = 256;

at::Tensor fused_forward(const at::Tensor& given, float bias) {
  const at::Tensor x = channels_last(given);
  at::Tensor y = at::empty_like(x);
  const int64_t channels = x.size(1) / 2, rows = x.numel() / x.size(1);
  at::parallel_for(0, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * 2 * channels;
    if (x.scalar_type() == at::kFloat)
      forward_float(x.data_ptr<float>() + at, y.data_ptr<float>() + at, end - begin, channels, bias);
    else
      forward_bfloat(x.data_ptr<at::BFloat16>() + at, y.data_ptr<at::BFloat16>() + at, end - begin, channels,
                     bias);
  });
  return y;
}

// The gradient of x, and of the bias.
std::pair<at::Tensor, double> fused_backward(const at::Tensor& given_gradient, const at::Tensor& x,
                                             float bias) {
  const at::Tensor gradient = channels_last(given_gradient);
  at::Tensor result = at::empty_like(x);
  const int64_t channels = x.size(1) / 2, rows = x.numel() / x.size(1);
  // Partial sums by a fixed partition of the rows, so that the result does not depend on scheduling.
  const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  std::vector<double> partial(static_cast<size_t>(tasks));
  at::parallel_for(0, tasks, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t begin = task * kRowsPerTask, count = std::min(kRowsPerTask, rows - begin);
      const int64_t at = begin * 2 * channels;
      partial[static_cast<size_t>(task)] =
          x.scalar_type() == at::kFloat
              ? backward_float(gradient.data_ptr<float>() + at, x.data_ptr<float>() + at,
                               result.data_ptr<float>() + at, count, channels, bias)
              : backward_bfloat(gradient.data_ptr<at::BFloat16>() + at, x.data_ptr<at::BFloat16>() + at,
                                result.data_ptr<at::BFloat16>() + at, count, channels, bias);
    }
  });
  double total = 0;
  for (const double part : partial) total += part;
  return {result, total};
}

struct ModRelu : torch::autograd::Function<ModRelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& bias) {
    const at::Tensor x = channels_last(given);
    context->save_for_backward({x, bias});
    return fused_forward(x, bias.item<float>());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1];
    if (at::GradMode::is_enabled()) {  // the gradient will itself be differentiated
      const at::Tensor y = mod_relu_reference(x, bias);
      std::vector<at::Tensor> inputs;
      for (const at::Tensor& input : {x, bias})
        if (input.requires_grad()) inputs.push_back(input);
      auto result = torch::autograd::grad({y}, inputs, {gradients[0]}, true, true);
      if (!x.requires_grad()) result.insert(result.begin(), at::Tensor());
      if (!bias.requires_grad()) result.push_back(at::Tensor());
      return result;
    }
    const auto [gradient, bias_gradient] =
        fused_backward(gradients[0].to(x.scalar_type()), x, bias.item<float>());
    return {gradient, at::full({}, bias_gradient, bias.options())};
  }
};

}  // namespace

at::Tensor mod_relu_reference(const at::Tensor& x, const at::Tensor& bias) {
  const auto parts = x.chunk(2, 1);
  const at::Tensor energy = parts[0].square() + parts[1].square();
  // The tiny constant keeps the gradient at zero finite and is lost in rounding everywhere else.
  const at::Tensor magnitude = at::sqrt(energy + 1e-30);
  return x * (at::relu(magnitude + bias) / magnitude).repeat({1, 2, 1, 1});
}

at::Tensor mod_relu(const at::Tensor& x, const at::Tensor& bias) {
  const bool known = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  if (!x.is_cpu() || !known) return mod_relu_reference(x, bias);
  return ModRelu::apply(x, bias);
}

}  // namespace melete
