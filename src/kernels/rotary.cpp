#include "kernels/rotary.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/vector_targets.h"

namespace melete {

namespace {

// Angles of one position, and all its heads.
struct Position {
  const float *cosine, *sine;  // [half]
  const float* x;
  int64_t x_step;  // from head to head
  float* y;        // [heads, width]
  int64_t heads, half, width;
};

MELETE_VECTOR_TARGETS
void turn_halves(const Position& p, float sign) {
  const float* __restrict cosine = p.cosine;
  const float* __restrict sine = p.sine;
  for (int64_t head = 0; head < p.heads; ++head) {
    const float* __restrict x = p.x + head * p.x_step;
    float* __restrict y = p.y + head * p.width;
    for (int64_t i = 0; i < p.half; ++i) {
      const float one = x[i], other = x[p.half + i], s = sign * sine[i];
      y[i] = one * cosine[i] - other * s;
      y[p.half + i] = other * cosine[i] + one * s;
    }
  }
}

MELETE_VECTOR_TARGETS
void turn_interleaved(const Position& p, float sign) {
  const float* __restrict cosine = p.cosine;
  const float* __restrict sine = p.sine;
  for (int64_t head = 0; head < p.heads; ++head) {
    const float* __restrict x = p.x + head * p.x_step;
    float* __restrict y = p.y + head * p.width;
    for (int64_t i = 0; i < p.half; ++i) {
      const float one = x[2 * i], other = x[2 * i + 1], s = sign * sine[i];
      y[2 * i] = one * cosine[i] - other * s;
      y[2 * i + 1] = other * cosine[i] + one * s;
    }
  }
}

}  // namespace

bool has_rotary(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat;
}

at::Tensor rotary(const at::Tensor& given, const at::Tensor& given_cosine, const at::Tensor& given_sine,
                  RotaryPairs pairs, bool back) {
  const at::Tensor x = given.stride(3) == 1 ? given : given.contiguous();
  const at::Tensor cosine = given_cosine.contiguous(), sine = given_sine.contiguous();
  const int64_t n = x.size(1), heads = x.size(2), width = x.size(3), half = cosine.size(1);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  at::parallel_for(0, x.size(0) * n, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, heads * width)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t item = i / n, position = i % n;
                       const Position p{cosine.data_ptr<float>() + position * half,
                                        sine.data_ptr<float>() + position * half,
                                        x.data_ptr<float>() + item * x.stride(0) + position * x.stride(1),
                                        x.stride(2),
                                        y.data_ptr<float>() + i * heads * width,
                                        heads,
                                        half,
                                        width};
                       (pairs == RotaryPairs::halves ? turn_halves : turn_interleaved)(p, back ? -1.f : 1.f);
                       for (int64_t head = 0; head < heads && 2 * half < width; ++head)
                         std::copy(p.x + head * p.x_step + 2 * half, p.x + head * p.x_step + width,
                                   p.y + head * width + 2 * half);
                     }
                   });
  return y;
}

}  // namespace melete
