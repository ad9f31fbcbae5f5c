#include "kernels/depthwise.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/shares.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

constexpr int64_t kBlock = 64;  // channels whose sums stay in registers

// One item: frames of `channels` values.
struct Item {
  const float* x;
  int64_t time, channels, kernel;
};

template <int64_t kWidth>
MELETE_INLINE void convolve_columns(const Item& item, const float* taps, const float* bias, int64_t first,
                                    int64_t begin, int64_t end, float* y, int64_t width) {
  const int64_t wide = kWidth > 0 ? kWidth : width, half = item.kernel / 2;
  for (int64_t t = begin; t < end; ++t) {
    float sum[kBlock];
    for (int64_t c = 0; c < wide; ++c) sum[c] = bias == nullptr ? 0.f : bias[first + c];
    const int64_t from = std::max<int64_t>(0, half - t), to = std::min(item.kernel, item.time + half - t);
    for (int64_t k = from; k < to; ++k) {
      const float* __restrict x = item.x + (t + k - half) * item.channels + first;
      const float* __restrict w = taps + k * item.channels + first;
      for (int64_t c = 0; c < wide; ++c) sum[c] += x[c] * w[c];
    }
    for (int64_t c = 0; c < wide; ++c) y[t * item.channels + first + c] = sum[c];
  }
}

MELETE_VECTOR_TARGETS
void convolve(const Item& item, const float* taps, const float* bias, int64_t begin, int64_t end, float* y) {
  for (int64_t first = 0; first < item.channels; first += kBlock) {
    const int64_t width = std::min(kBlock, item.channels - first);
    if (width == kBlock)
      convolve_columns<kBlock>(item, taps, bias, first, begin, end, y, width);
    else
      convolve_columns<0>(item, taps, bias, first, begin, end, y, width);
  }
}

template <int64_t kWidth>
MELETE_INLINE void correlate_columns(const Item& item, const float* gradient, int64_t first, float* taps,
                                     int64_t width) {
  const int64_t wide = kWidth > 0 ? kWidth : width, half = item.kernel / 2;
  for (int64_t k = 0; k < item.kernel; ++k) {
    float sum[kBlock] = {};
    const int64_t from = std::max<int64_t>(0, half - k), to = std::min(item.time, item.time + half - k);
    for (int64_t t = from; t < to; ++t) {
      const float* __restrict x = item.x + (t + k - half) * item.channels + first;
      const float* __restrict g = gradient + t * item.channels + first;
      for (int64_t c = 0; c < wide; ++c) sum[c] += x[c] * g[c];
    }
    for (int64_t c = 0; c < wide; ++c) taps[k * item.channels + first + c] = sum[c];
  }
}

MELETE_VECTOR_TARGETS
void correlate(const Item& item, const float* gradient, float* taps) {
  for (int64_t first = 0; first < item.channels; first += kBlock) {
    const int64_t width = std::min(kBlock, item.channels - first);
    if (width == kBlock)
      correlate_columns<kBlock>(item, gradient, first, taps, width);
    else
      correlate_columns<0>(item, gradient, first, taps, width);
  }
}

}  // namespace

bool has_depthwise(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat;
}

at::Tensor depthwise(const at::Tensor& given, const at::Tensor& given_taps, const at::Tensor& bias) {
  const at::Tensor x = given.contiguous(), taps = given_taps.contiguous();
  const at::Tensor shift = bias.defined() ? bias.contiguous() : bias;
  const int64_t time = x.size(1), channels = x.size(2), kernel = taps.size(0);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const float* from = x.data_ptr<float>();
  const float* weights = taps.data_ptr<float>();
  const float* shifts = shift.defined() ? shift.data_ptr<float>() : nullptr;
  float* to = y.data_ptr<float>();
  const int64_t few = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, kernel * channels));
  at::parallel_for(0, x.size(0) * time, few, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t item = begin / time, first = begin % time, last = std::min(time, first + end - begin);
      const int64_t offset = item * time * channels;
      convolve({from + offset, time, channels, kernel}, weights, shifts, first, last, to + offset);
      begin += last - first;
    }
  });
  return y;
}

at::Tensor depthwise_taps_gradient(const at::Tensor& given, const at::Tensor& given_gradient,
                                   int64_t kernel) {
  const at::Tensor x = given.contiguous(), gradient = given_gradient.contiguous();
  const int64_t items = x.size(0), time = x.size(1), channels = x.size(2);
  const at::Tensor sums = at::empty({items, kernel, channels}, x.options());
  const float* from = x.data_ptr<float>();
  const float* by = gradient.data_ptr<float>();
  float* to = sums.data_ptr<float>();
  at::parallel_for(0, items, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t offset = item * time * channels;
      correlate({from + offset, time, channels, kernel}, by + offset, to + item * kernel * channels);
    }
  });
  return sum_of_shares(sums);
}

}  // namespace melete
