#include "kernels/offset_gather.h"

#include <ATen/Parallel.h>

#include <vector>

namespace melete {

namespace {

// Half as wide as int64: twice as many in a vector.
std::vector<int32_t> narrow_places(const at::Tensor& places) {
  const at::Tensor plain = places.contiguous();
  const int64_t* from = plain.data_ptr<int64_t>();
  return {from, from + plain.numel()};
}

}  // namespace

bool has_offset_gather(const at::Tensor& table) {
  return table.device().is_cpu() && table.scalar_type() == at::kFloat && table.dim() == 2;
}

at::Tensor offset_gather_forward(const at::Tensor& table, const at::Tensor& places, int64_t middle) {
  const int64_t n = places.size(0), heads = table.size(1), offsets = table.size(0);
  const at::Tensor by_head = table.t().contiguous();  // a head's values fit in the first cache
  const std::vector<int32_t> place = narrow_places(places);
  at::Tensor result = at::empty({n, heads, n}, table.options());
  const float* values = by_head.data_ptr<float>();
  float* out = result.data_ptr<float>();
  at::parallel_for(0, n, 8, [&](int64_t begin, int64_t end) {
    for (int64_t query = begin; query < end; ++query)
      for (int64_t head = 0; head < heads; ++head) {
        const float* own = values + head * offsets + place[static_cast<size_t>(query)] + middle;
        float* row = out + (query * heads + head) * n;
        for (int64_t key = 0; key < n; ++key) row[key] = own[-place[static_cast<size_t>(key)]];
      }
  });
  return result;
}

at::Tensor offset_gather_backward(const at::Tensor& gradient, const at::Tensor& places, int64_t middle,
                                  int64_t offsets) {
  const at::Tensor plain = gradient.contiguous();
  const int64_t n = places.size(0), heads = plain.size(1);
  const std::vector<int32_t> place = narrow_places(places);
  at::Tensor by_head = at::zeros({heads, offsets}, plain.options());
  const float* in = plain.data_ptr<float>();
  float* sums = by_head.data_ptr<float>();
  at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head)
      for (int64_t query = 0; query < n; ++query) {
        float* own = sums + head * offsets + place[static_cast<size_t>(query)] + middle;
        const float* row = in + (query * heads + head) * n;
        for (int64_t key = 0; key < n; ++key) own[-place[static_cast<size_t>(key)]] += row[key];
      }
  });
  return by_head.t().contiguous();
}

at::Tensor offset_gather_plain(const at::Tensor& table, const at::Tensor& places, int64_t middle) {
  const at::Tensor offsets = places.unsqueeze(1) - places.unsqueeze(0) + middle;  // [n, n]
  return at::embedding(table, offsets).transpose(1, 2);
}

}  // namespace melete
