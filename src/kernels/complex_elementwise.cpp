#include "kernels/complex_elementwise.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunk = 1 << 14;  // values of one task

template <class T>
MELETE_INLINE void mod_relu_forward(const T* re, const T* im, T* out_re, T* out_im, int64_t count,
                                    float threshold) {
  for (int64_t i = 0; i < count; ++i) {
    const float a = static_cast<float>(re[i]), b = static_cast<float>(im[i]);
    const float magnitude = std::sqrt(a * a + b * b);
    const float kept = std::max(magnitude + threshold, 0.f);
    const bool zero = magnitude == 0;
    const float scale = kept / (zero ? 1.f : magnitude);
    out_re[i] = static_cast<T>(zero ? kept : a * scale);
    out_im[i] = static_cast<T>(b * scale);
  }
}

// Returns the sum of the threshold's gradient.
template <class T>
MELETE_INLINE float mod_relu_backward(const T* g_re, const T* g_im, const T* re, const T* im, T* out_re,
                                      T* out_im, int64_t count, float threshold) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) {
    const float a = static_cast<float>(re[i]), b = static_cast<float>(im[i]);
    const float ga = static_cast<float>(g_re[i]), gb = static_cast<float>(g_im[i]);
    const float magnitude = std::sqrt(a * a + b * b);
    const bool zero = magnitude == 0;
    const float inverse = zero ? 0.f : 1.f / (zero ? 1.f : magnitude);
    const float ua = a * inverse, ub = b * inverse;  // direction
    const float kept = magnitude + threshold;
    const float active = kept > 0 ? 1.f : 0.f;
    const float scale = active * kept * inverse;
    const float along = ga * ua + gb * ub;
    const float turn = (active - scale) * along;
    out_re[i] = static_cast<T>(turn * ua + scale * ga);
    out_im[i] = static_cast<T>(turn * ub + scale * gb);
    total += active * (zero ? ga : along);
  }
  return total;
}

// The gradient itself is g + threshold / |z| * (the part of g across z) where something is kept. From h, the
// gradient of its result: those of g and z, and returned the sum of the threshold's.
template <class T>
MELETE_INLINE float mod_relu_second(const T* h_re, const T* h_im, const T* g_re, const T* g_im, const T* re,
                                    const T* im, T* for_g_re, T* for_g_im, T* for_re, T* for_im,
                                    int64_t count, float threshold) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) {
    const float a = static_cast<float>(re[i]), b = static_cast<float>(im[i]);
    const float ga = static_cast<float>(g_re[i]), gb = static_cast<float>(g_im[i]);
    const float ha = static_cast<float>(h_re[i]), hb = static_cast<float>(h_im[i]);
    const float magnitude = std::sqrt(a * a + b * b);
    const bool zero = magnitude == 0;
    const float inverse = zero ? 0.f : 1.f / (zero ? 1.f : magnitude);
    const float active = !zero && magnitude + threshold > 0 ? 1.f : 0.f;
    const float ua = a * inverse, ub = b * inverse;  // direction of z; (-ub, ua) lies across
    const float g_along = ga * ua + gb * ub, g_across = gb * ua - ga * ub;
    const float h_along = ha * ua + hb * ub, h_across = hb * ua - ha * ub;
    const float bent = active * threshold * inverse;
    for_g_re[i] = static_cast<T>(active * ha - bent * h_across * ub);
    for_g_im[i] = static_cast<T>(active * hb + bent * h_across * ua);
    const float along = bent * inverse * g_across * h_across,
                across = bent * inverse * (h_along * g_across + g_along * h_across);
    for_re[i] = static_cast<T>(across * ub - along * ua);
    for_im[i] = static_cast<T>(-across * ua - along * ub);
    total += active * inverse * g_across * h_across;
  }
  return total;
}

template <class T>
MELETE_INLINE float distance_forward(const T* a_re, const T* a_im, const T* b_re, const T* b_im,
                                     int64_t count) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) {
    const float re = static_cast<float>(a_re[i]) - static_cast<float>(b_re[i]);
    const float im = static_cast<float>(a_im[i]) - static_cast<float>(b_im[i]);
    total += std::sqrt(re * re + im * im);
  }
  return total;
}

// gradient * (a - b) / |a - b|, zero where they are equal
template <class T>
MELETE_INLINE void distance_backward(const T* a_re, const T* a_im, const T* b_re, const T* b_im, T* out_re,
                                     T* out_im, int64_t count, float gradient) {
  for (int64_t i = 0; i < count; ++i) {
    const float re = static_cast<float>(a_re[i]) - static_cast<float>(b_re[i]);
    const float im = static_cast<float>(a_im[i]) - static_cast<float>(b_im[i]);
    const float length = std::sqrt(re * re + im * im);
    const float scale = length == 0 ? 0.f : gradient / (length == 0 ? 1.f : length);
    out_re[i] = static_cast<T>(re * scale);
    out_im[i] = static_cast<T>(im * scale);
  }
}

// One clone of every loop for each type and instruction set.
#define MELETE_LOOPS(T)                                                                                     \
  MELETE_VECTOR_TARGETS void run_mod_relu_forward(const T* re, const T* im, T* out_re, T* out_im,           \
                                                  int64_t count, float threshold) {                         \
    mod_relu_forward(re, im, out_re, out_im, count, threshold);                                             \
  }                                                                                                         \
  MELETE_VECTOR_TARGETS float run_mod_relu_backward(const T* g_re, const T* g_im, const T* re, const T* im, \
                                                    T* out_re, T* out_im, int64_t count, float threshold) { \
    return mod_relu_backward(g_re, g_im, re, im, out_re, out_im, count, threshold);                         \
  }                                                                                                         \
  MELETE_VECTOR_TARGETS float run_mod_relu_second(                                                          \
      const T* h_re, const T* h_im, const T* g_re, const T* g_im, const T* re, const T* im, T* for_g_re,    \
      T* for_g_im, T* for_re, T* for_im, int64_t count, float threshold) {                                  \
    return mod_relu_second(h_re, h_im, g_re, g_im, re, im, for_g_re, for_g_im, for_re, for_im, count,       \
                           threshold);                                                                      \
  }                                                                                                         \
  MELETE_VECTOR_TARGETS float run_distance_forward(const T* a_re, const T* a_im, const T* b_re,             \
                                                   const T* b_im, int64_t count) {                          \
    return distance_forward(a_re, a_im, b_re, b_im, count);                                                 \
  }                                                                                                         \
  MELETE_VECTOR_TARGETS void run_distance_backward(const T* a_re, const T* a_im, const T* b_re,             \
                                                   const T* b_im, T* out_re, T* out_im, int64_t count,      \
                                                   float gradient) {                                        \
    distance_backward(a_re, a_im, b_re, b_im, out_re, out_im, count, gradient);                             \
  }
MELETE_LOOPS(float)
MELETE_LOOPS(at::BFloat16)
#undef MELETE_LOOPS

// All pointwise work needs the tensors in one memory order; activations come channels-last.
at::Tensor same_order(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.contiguous(like.suggest_memory_format());
}

// Calls work(begin, count) on fixed chunks and adds what it returns, in order: the sum does not depend on
// threads.
template <class Work>
double over_chunks(int64_t size, const Work& work) {
  const int64_t chunks = (size + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kChunk;
      sums[static_cast<size_t>(chunk)] = static_cast<double>(work(begin, std::min(kChunk, size - begin)));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

template <class Work>
void for_type(const at::Tensor& tensor, const Work& work) {
  if (tensor.scalar_type() == at::kFloat)
    work(float{});
  else
    work(at::BFloat16{});
}

bool has_kernel(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

// The gradient of z; returns the sum of the threshold's.
double mod_relu_gradient(const ComplexPair& g, const ComplexPair& z, float threshold, ComplexPair& result) {
  result = {at::empty_like(z.re), at::empty_like(z.re)};
  double total = 0;
  for_type(z.re, [&](auto type) {
    using T = decltype(type);
    total = over_chunks(z.re.numel(), [&](int64_t at, int64_t count) {
      return run_mod_relu_backward(g.re.data_ptr<T>() + at, g.im.data_ptr<T>() + at, z.re.data_ptr<T>() + at,
                                   z.im.data_ptr<T>() + at, result.re.data_ptr<T>() + at,
                                   result.im.data_ptr<T>() + at, count, threshold);
    });
  });
  return total;
}

// The same as a function, for gradients of gradients.
struct ModReluGradient : torch::autograd::Function<ModReluGradient> {
  static variable_list forward(AutogradContext* context, const at::Tensor& g_re, const at::Tensor& g_im,
                               const at::Tensor& re, const at::Tensor& im, const at::Tensor& threshold) {
    context->save_for_backward({g_re, g_im, re, im, threshold});
    ComplexPair result;
    mod_relu_gradient({g_re, g_im}, {re, im}, threshold.item<float>(), result);
    return {result.re, result.im};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require(!at::GradMode::is_enabled(), "[mod_relu] expected no third derivative; there is none");
    const auto saved = context->get_saved_variables();
    const at::Tensor &re = saved[2], &threshold = saved[4];
    const at::Tensor h_re = same_order(gradients[0], re), h_im = same_order(gradients[1], re);
    variable_list result(5);
    for (size_t i = 0; i < 4; ++i) result[i] = at::empty_like(re);
    const float level = threshold.item<float>();
    double total = 0;
    for_type(re, [&](auto type) {
      using T = decltype(type);
      const auto from = [&](size_t i) { return saved[i].template data_ptr<T>(); };
      const auto to = [&](size_t i) { return result[i].template data_ptr<T>(); };
      total = over_chunks(re.numel(), [&](int64_t at, int64_t count) {
        return run_mod_relu_second(h_re.data_ptr<T>() + at, h_im.data_ptr<T>() + at, from(0) + at,
                                   from(1) + at, from(2) + at, from(3) + at, to(0) + at, to(1) + at,
                                   to(2) + at, to(3) + at, count, level);
      });
    });
    result[4] = at::full({}, total, threshold.options());
    return result;
  }
};

struct ModRelu : torch::autograd::Function<ModRelu> {
  static variable_list forward(AutogradContext* context, const at::Tensor& re, const at::Tensor& im,
                               const at::Tensor& threshold) {
    context->save_for_backward({re, im, threshold});
    at::Tensor out_re = at::empty_like(re), out_im = at::empty_like(re);
    const float level = threshold.item<float>();
    for_type(re, [&](auto type) {
      using T = decltype(type);
      over_chunks(re.numel(), [&](int64_t at, int64_t count) {
        run_mod_relu_forward(re.data_ptr<T>() + at, im.data_ptr<T>() + at, out_re.data_ptr<T>() + at,
                             out_im.data_ptr<T>() + at, count, level);
        return 0.f;
      });
    });
    return {out_re, out_im};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &re = saved[0], &im = saved[1], &threshold = saved[2];
    const ComplexPair g{same_order(gradients[0], re), same_order(gradients[1], re)};
    if (!at::GradMode::is_enabled()) {
      ComplexPair result;
      const double total = mod_relu_gradient(g, {re, im}, threshold.item<float>(), result);
      return {result.re, result.im, at::full({}, total, threshold.options())};
    }
    // The gradient will itself be differentiated.
    if (!context->needs_input_grad(2)) {
      const auto result = ModReluGradient::apply(g.re, g.im, re, im, threshold);
      return {result[0], result[1], at::Tensor()};
    }
    const ComplexPair y = mod_relu_reference({re, im}, threshold);
    variable_list inputs, result(3);
    for (const at::Tensor& input : saved)
      if (input.requires_grad()) inputs.push_back(input);
    const auto found = torch::autograd::grad({y.re, y.im}, inputs, {g.re, g.im}, true, true);
    for (size_t i = 0, next = 0; i < 3; ++i)
      if (saved[i].requires_grad()) result[i] = found[next++];
    return result;
  }
};

struct MeanDistance : torch::autograd::Function<MeanDistance> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a_re, const at::Tensor& given_a_im,
                            const at::Tensor& given_b_re, const at::Tensor& given_b_im) {
    const at::Tensor a_im = same_order(given_a_im, a_re), b_re = same_order(given_b_re, a_re),
                     b_im = same_order(given_b_im, a_re);
    context->save_for_backward({a_re, a_im, b_re, b_im});
    double total = 0;
    for_type(a_re, [&](auto type) {
      using T = decltype(type);
      total = over_chunks(a_re.numel(), [&](int64_t at, int64_t count) {
        return run_distance_forward(a_re.data_ptr<T>() + at, a_im.data_ptr<T>() + at, b_re.data_ptr<T>() + at,
                                    b_im.data_ptr<T>() + at, count);
      });
    });
    return at::full({}, total / static_cast<double>(a_re.numel()), a_re.options().dtype(at::kFloat));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const float each = gradients[0].item<float>() / static_cast<float>(saved[0].numel());
    variable_list result(4);
    for_type(saved[0], [&](auto type) {
      using T = decltype(type);
      // The gradient of b is that of a with the other sign.
      for (size_t side : {size_t{0}, size_t{2}}) {
        if (!context->needs_input_grad(side) && !context->needs_input_grad(side + 1)) continue;
        at::Tensor out_re = at::empty_like(saved[0]), out_im = at::empty_like(saved[0]);
        over_chunks(saved[0].numel(), [&](int64_t at, int64_t count) {
          run_distance_backward(saved[0].data_ptr<T>() + at, saved[1].data_ptr<T>() + at,
                                saved[2].data_ptr<T>() + at, saved[3].data_ptr<T>() + at,
                                out_re.data_ptr<T>() + at, out_im.data_ptr<T>() + at, count,
                                side == 0 ? each : -each);
          return 0.f;
        });
        result[side] = out_re;
        result[side + 1] = out_im;
      }
    });
    return result;
  }
};

}  // namespace

ComplexPair mod_relu_reference(const ComplexPair& z, const at::Tensor& threshold) {
  const at::Tensor energy = z.re.square() + z.im.square(), zero = energy == 0;
  const at::Tensor magnitude = at::sqrt(energy.masked_fill(zero, 1));
  const at::Tensor scale = (at::relu(magnitude + threshold) / magnitude).masked_fill(zero, 0);
  // The angle of zero is zero: there the real part is what the threshold leaves, and has no slope.
  return {z.re * scale + at::relu(threshold) * zero.to(z.re.scalar_type()), z.im * scale};
}

at::Tensor mean_distance_reference(const ComplexPair& a, const ComplexPair& b) {
  const at::Tensor re = (a.re - b.re).to(at::kFloat), im = (a.im - b.im).to(at::kFloat);
  return at::sqrt(re.square() + im.square() + 1e-30).mean();
}

ComplexPair mod_relu(const ComplexPair& z, const at::Tensor& threshold) {
  if (!has_kernel(z.re)) return mod_relu_reference(z, threshold);
  // Laid out here: what is saved for the backward pass must be part of the graph.
  const at::Tensor re = z.re.contiguous(z.re.suggest_memory_format());
  const auto result = ModRelu::apply(re, same_order(z.im, re), threshold);
  return {result[0], result[1]};
}

at::Tensor mean_distance(const ComplexPair& a, const ComplexPair& b) {
  if (!has_kernel(a.re) || a.re.scalar_type() != b.re.scalar_type()) return mean_distance_reference(a, b);
  return MeanDistance::apply(a.re.contiguous(a.re.suggest_memory_format()), a.im, b.re, b.im);
}

}  // namespace melete
