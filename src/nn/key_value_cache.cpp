#include "nn/key_value_cache.h"

#include <ATen/Parallel.h>

#include <vector>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/one_position.h"

namespace melete {

namespace {

bool has_kernel(const at::Tensor& q, const KeyValueCache& cache, const AttentionOptions& how) {
  const bool drops = how.dropout > 0 && how.draws != nullptr;
  const auto plain = [](const at::Tensor& t) {
    return t.device().is_cpu() && t.scalar_type() == at::kFloat &&
           !(at::GradMode::is_enabled() && t.requires_grad());
  };
  return plain(q) && plain(cache.keys) && plain(cache.values) && (!how.bias.defined() || plain(how.bias)) &&
         !drops && autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t rows, int64_t capacity, int64_t kv_heads, int64_t dim,
                             const at::TensorOptions& options)
    : keys(at::empty({rows, capacity, kv_heads, dim}, options)), values(at::empty_like(keys)) {}

void KeyValueCache::append(const at::Tensor& k, const at::Tensor& v) {
  const int64_t count = k.size(1);
  require(length + count <= keys.size(1), "[cache] it holds {} positions, {} needed", keys.size(1),
          length + count);
  keys.narrow(1, length, count).copy_(k);
  values.narrow(1, length, count).copy_(v);
  length += count;
}

void KeyValueCache::keep_rows(const at::Tensor& rows) {
  keys = keys.index_select(0, rows);
  values = values.index_select(0, rows);
}

at::Tensor attend_one(const at::Tensor& q, const KeyValueCache& cache, const AttentionOptions& how) {
  const int64_t rows = q.size(0), heads = q.size(1), dim = q.size(2), length = cache.length;
  if (!has_kernel(q, cache, how))
    return attend(q.unsqueeze(1), cache.read_keys(), cache.read_values(), how).squeeze(1);
  const at::Tensor query = q.contiguous(), result = at::empty({rows, heads * dim}, q.options());
  const at::Tensor bias =
      how.bias.defined() ? how.bias.expand({1, heads, length}).contiguous() : at::Tensor();
  const at::Tensor hidden = how.hidden.defined() ? how.hidden.contiguous() : at::Tensor();
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(heads * length));
    for (int64_t row = begin; row < end; ++row) {
      PositionAttention a;
      a.query = query.data_ptr<float>() + row * heads * dim;
      a.first_key = cache.keys.data_ptr<float>() + row * cache.keys.stride(0);
      a.first_value = cache.values.data_ptr<float>() + row * cache.values.stride(0);
      a.step = cache.keys.stride(1);
      a.keys = length;
      a.heads = heads;
      a.kv_heads = cache.keys.size(2);
      a.dim = dim;
      a.scale = static_cast<float>(how.scale);
      if (bias.defined()) a.bias = bias.data_ptr<float>(), a.bias_step = length;
      if (hidden.defined())
        a.hidden = reinterpret_cast<const uint8_t*>(hidden.data_ptr<bool>()) + row * length;
      attend_position(a, scores.data(), result.data_ptr<float>() + row * heads * dim);
    }
  });
  return result;
}

}  // namespace melete
