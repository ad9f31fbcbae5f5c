#include "nn/attention.h"

#include <torch/autograd.h>

#include "core/autocast.h"
#include "kernels/shared_attention.h"
#include "kernels/softmax_rows.h"
#include "nn/feed_forward.h"

namespace melete {

namespace {

struct Shared : torch::autograd::Function<Shared> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const c10::optional<at::Tensor>& bias,
                            const SharedAttention& how) {
    const auto [mixed, weights] =
        shared_attention_forward({q, k, v, how.bias, how.hidden, how.scale, how.causal});
    context->save_for_backward({q, k, v, how.bias, how.hidden, weights});
    context->saved_data["scale"] = how.scale;
    context->saved_data["causal"] = how.causal;
    context->saved_data["learned_bias"] = bias.has_value() && bias->requires_grad();
    return mixed;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const auto result = shared_attention_backward(
        {saved[0], saved[1], saved[2], saved[3], saved[4], data["scale"].toDouble(), data["causal"].toBool()},
        saved[5], gradients[0], data["learned_bias"].toBool());
    return {result.q, result.k, result.v, result.bias, {}};
  }
};

bool has_kernel(const at::Tensor& q, const SharedAttention& how) {
  const bool drops = how.dropout > 0 && how.draws != nullptr;
  return has_shared_attention(q) && !drops && autocast_type(at::kCPU, at::kFloat) == at::kFloat;
}

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& hidden) {
  at::Tensor scores = at::matmul(q * scale, k.transpose(-2, -1)).to(at::kFloat);
  if (bias) scores = scores + *bias;
  if (hidden) scores = scores.masked_fill(*hidden, kUnseen);
  return at::matmul(at::softmax(scores, -1).to(v.scalar_type()), v);
}

// Heads share their keys, so queries of all heads are rows of one product: nothing is transposed or copied.
at::Tensor attend_shared(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const SharedAttention& how) {
  if (has_kernel(q, how)) {
    const auto bias = how.bias.defined() ? c10::optional<at::Tensor>(how.bias) : c10::nullopt;
    return Shared::apply(q, k, v, bias, how);
  }
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), keys = k.size(1);
  const at::Tensor rows = q.reshape({batch, queries * heads, q.size(3)});
  const at::Tensor columns = k.transpose(1, 2);
  at::Tensor scores;
  const bool full = autocast_type(q.device().type(), at::kFloat) == at::kFloat;
  if (how.bias.defined() && full) {
    scores = at::baddbmm(how.bias.reshape({1, queries * heads, keys}), rows, columns, 1, how.scale);
  } else {
    // Not baddbmm with beta 0: for small matrices it multiplies what it finds in fresh memory by 0.
    scores = at::bmm(rows * how.scale, columns).to(at::kFloat);  // the softmax stays in float32
    if (how.bias.defined()) scores = scores + how.bias.reshape({1, queries * heads, keys});
  }
  if (how.hidden.defined()) scores.masked_fill_(how.hidden.unsqueeze(1), kUnseen);
  const at::Tensor weights = dropout(at::softmax(scores, -1), how.dropout, how.draws);
  return at::bmm(weights.to(v.scalar_type()), v).view({batch, queries, heads * v.size(2)});
}

}  // namespace melete
