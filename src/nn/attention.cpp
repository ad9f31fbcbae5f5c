#include "nn/attention.h"

#include <torch/autograd.h>
#include <torch/version.h>

#include <cmath>
#include <limits>

#include "core/autocast.h"
#include "core/base/error.h"
#include "kernels/attention.h"
#include "kernels/softmax_rows.h"
#include "nn/feed_forward.h"

namespace melete {

namespace {

// The kernel takes float32 and rounds on its own where autocast asks for bf16.
bool rounds() {
  return autocast_type(at::kCPU, at::kFloat) == at::kBFloat16;
}

struct Blockwise : torch::autograd::Function<Blockwise> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const c10::optional<at::Tensor>& bias,
                            const AttentionOptions& how) {
    const bool round = rounds();
    const auto [mixed, weights] =
        attention_forward({q, k, v, how.bias, how.hidden, how.scale, how.causal, round}, true);
    context->save_for_backward({q, k, v, how.bias, how.hidden, weights});
    context->saved_data["scale"] = how.scale;
    context->saved_data["causal"] = how.causal;
    context->saved_data["round"] = round;
    context->saved_data["learned_bias"] = bias.has_value() && bias->requires_grad();
    return mixed;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const auto result =
        attention_backward({saved[0], saved[1], saved[2], saved[3], saved[4], data["scale"].toDouble(),
                            data["causal"].toBool(), data["round"].toBool()},
                           saved[5], gradients[0], data["learned_bias"].toBool());
    return {result.q, result.k, result.v, result.bias, {}};
  }
};

bool drops(const AttentionOptions& how) {
  return how.dropout > 0 && how.draws != nullptr;
}

bool has_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& how) {
  const auto type = q.scalar_type();
  return has_attention_kernel(q) && k.scalar_type() == type && v.scalar_type() == type &&
         v.size(3) == q.size(3) && !drops(how);
}

// Keys that come after a query: bool [queries, 1, keys]
at::Tensor future(int64_t queries, int64_t keys, const at::Tensor& like) {
  return at::ones({queries, keys}, like.options().dtype(at::kBool)).triu(keys - queries + 1).unsqueeze(1);
}

}  // namespace

// Query heads that share their keys are rows of one product: [batch * kv_heads,
// queries * group, dim], where a group is as many query heads as read one key head.
at::Tensor attend_by_operators(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& how) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), dim = q.size(3);
  const int64_t keys = k.size(1), kv_heads = k.size(2), group = heads / kv_heads, width = v.size(3);
  const at::Tensor rows = q.reshape({batch, queries, group, kv_heads, dim})
                              .permute({0, 3, 1, 2, 4})
                              .reshape({batch * kv_heads, queries * group, dim});
  const at::Tensor columns = k.permute({0, 2, 3, 1}).reshape({batch * kv_heads, dim, keys});
  const at::Tensor values = v.transpose(1, 2).reshape({batch * kv_heads, keys, width});
  // [kv_heads, queries * group, keys]
  at::Tensor bias;
  if (how.bias.defined())
    bias = how.bias.expand({queries, heads, keys})
               .reshape({queries, group, kv_heads, keys})
               .permute({2, 0, 1, 3})
               .reshape({kv_heads, queries * group, keys});
  at::Tensor scores;
  const bool full = autocast_type(q.device().type(), at::kFloat) == at::kFloat;
  if (bias.defined() && kv_heads == 1 && full) {
    scores = at::baddbmm(bias, rows, columns, 1, how.scale);
  } else {
    // Not baddbmm with beta 0: for small matrices it multiplies what it finds in fresh memory by 0.
    scores = in_float(at::bmm(rows * how.scale, columns));
    if (bias.defined()) scores = (scores.view({batch, kv_heads, queries * group, keys}) + bias).flatten(0, 1);
  }
  if (how.hidden.defined()) scores.view({batch, -1, keys}).masked_fill_(how.hidden.unsqueeze(1), kUnseen);
  if (how.causal)
    scores.view({batch * kv_heads, queries, group, keys})
        .masked_fill_(future(queries, keys, q), -std::numeric_limits<double>::infinity());
  const at::Tensor weights = dropout(at::softmax(scores, -1), how.dropout, how.draws);
  return at::bmm(weights.to(values.scalar_type()), values)
      .view({batch, kv_heads, queries, group, width})
      .permute({0, 2, 3, 1, 4})
      .reshape({batch, queries, heads * width});
}

#if TORCH_VERSION_MAJOR >= 2

bool has_fused_attention(const AttentionOptions& how) {
  return !drops(how) && !how.hidden.defined();
}

at::Tensor attend_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionOptions& how) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2);
  const int64_t keys = k.size(1), kv_heads = k.size(2), group = heads / kv_heads;
  // [batch, keys, kv_heads, width] -> [batch, heads, keys, width], kv_heads after kv_heads
  const auto for_all = [&](const at::Tensor& t) {
    const at::Tensor own = t.transpose(1, 2);
    return group == 1 ? own
                      : own.unsqueeze(1)
                            .expand({batch, group, kv_heads, keys, t.size(3)})
                            .reshape({batch, heads, keys, t.size(3)});
  };
  // Its own causal mask begins at the first key, ours ends at the last.
  const bool causal = how.causal && queries == keys && !how.bias.defined();
  at::Tensor mask;
  if (how.bias.defined()) mask = how.bias.expand({queries, -1, keys}).transpose(0, 1).unsqueeze(0);
  if (how.causal && !causal) {
    if (!mask.defined()) mask = at::zeros({1, 1, queries, keys}, q.options());
    mask = mask.masked_fill(future(queries, keys, q).transpose(0, 1).unsqueeze(0),
                            -std::numeric_limits<double>::infinity());
  }
  // It divides by the root of the width, ours is told by what.
  const at::Tensor scaled = q * (how.scale * std::sqrt(static_cast<double>(q.size(3))));
  const c10::optional<at::Tensor> added =
      mask.defined() ? c10::optional<at::Tensor>(mask.to(scaled.scalar_type())) : c10::nullopt;
  return at::scaled_dot_product_attention(scaled.transpose(1, 2), for_all(k), for_all(v), added, 0.0, causal)
      .transpose(1, 2)
      .reshape({batch, queries, heads * v.size(3)});
}

#else

bool has_fused_attention(const AttentionOptions&) {
  return false;
}

at::Tensor attend_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionOptions& how) {
  return attend_by_operators(q, k, v, how);
}

#endif

at::Tensor attend(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                  const AttentionOptions& how) {
  const at::Tensor k = keys.dim() == 3 ? keys.unsqueeze(2) : keys;
  const at::Tensor v = values.dim() == 3 ? values.unsqueeze(2) : values;
  require(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(2) % k.size(2) == 0,
          "[attention] expected queries [batch, queries, heads, dim] and keys [batch, keys, kv_heads, dim] "
          "whose heads divide the queries', got {} and {} dimensions with {} and {} heads",
          q.dim(), k.dim(), q.size(2), k.size(2));
  require(!how.causal || q.size(1) <= k.size(1),
          "[attention] a causal one has a key for every query, got {} queries and {} keys", q.size(1),
          k.size(1));
  if (!q.device().is_cpu() && has_fused_attention(how)) return attend_fused(q, k, v, how);
  if (!has_kernel(q, k, v, how)) return attend_by_operators(q, k, v, how);
  AttentionOptions kernel = how;
  if (how.bias.defined()) kernel.bias = how.bias.expand({q.size(1), q.size(2), k.size(1)});
  const bool differentiated =
      at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad() ||
                                     (how.bias.defined() && how.bias.requires_grad()));
  if (!differentiated)
    return attention_forward({q, k, v, kernel.bias, how.hidden, how.scale, how.causal, rounds()}, false)
        .mixed;
  const auto bias = kernel.bias.defined() ? c10::optional<at::Tensor>(kernel.bias) : c10::nullopt;
  return Blockwise::apply(q, k, v, bias, kernel);
}

}  // namespace melete
