#include "kernels/shared_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/softmax_rows.h"

namespace melete {

namespace {

constexpr int64_t kQueries = 64;  // of a block

class Blocks {
 public:
  explicit Blocks(const SharedAttentionInput& in)
      : in_(in),
        batch_(in.q.size(0)),
        queries_(in.q.size(1)),
        heads_(in.q.size(2)),
        dim_(in.q.size(3)),
        keys_(in.k.size(1)),
        bias_(in.bias.defined() && in.bias.stride(2) != 1 ? in.bias.contiguous() : in.bias),
        hidden_(in.hidden.defined() ? in.hidden.contiguous() : in.hidden),
        rows_(in.q.reshape({batch_, queries_ * heads_, dim_})) {}

  int64_t batch() const { return batch_; }
  int64_t keys() const { return keys_; }
  int64_t all_rows() const { return queries_ * heads_; }
  const at::Tensor& rows() const { return rows_; }

  // work(first query, number of queries, keys that the last of them sees), for every block
  template <class Work>
  void each(Work work) const {
    const int64_t blocks = (queries_ + kQueries - 1) / kQueries;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      const at::NoGradGuard no_grad;  // of this thread
      for (int64_t task = begin; task < end; ++task) {
        // Long and short blocks in turn, so that threads have equal shares.
        const int64_t block = task % 2 == 0 ? task / 2 : blocks - 1 - task / 2;
        const int64_t first = block * kQueries, count = std::min(kQueries, queries_ - first);
        work(first, count, seen(first + count - 1));
      }
    });
  }

  int64_t seen(int64_t query) const {
    return in_.causal ? std::min(keys_, query + 1 + keys_ - queries_) : keys_;
  }
  at::Tensor of_block(const at::Tensor& by_row, int64_t item, int64_t first, int64_t count) const {
    return by_row.select(0, item).narrow(0, first * heads_, count * heads_);
  }

  // work(row of scores, its index below the block, index in [queries, heads])
  template <class Work>
  void each_row(int64_t item, int64_t first, int64_t count, int64_t width, Work work) const {
    ScoreRow row;
    row.width = width;
    row.scale = static_cast<float>(in_.scale);
    if (hidden_.defined())
      row.hidden = reinterpret_cast<const uint8_t*>(hidden_.data_ptr<bool>()) + item * keys_;
    for (int64_t i = 0; i < count * heads_; ++i) {
      const int64_t query = first + i / heads_, head = i % heads_;
      row.seen = seen(query);
      if (bias_.defined())
        row.bias = bias_.data_ptr<float>() + query * bias_.stride(0) + head * bias_.stride(1);
      work(row, i, query * heads_ + head);
    }
  }

 private:
  const SharedAttentionInput& in_;
  int64_t batch_, queries_, heads_, dim_, keys_;
  at::Tensor bias_, hidden_, rows_;
};

}  // namespace

SharedAttentionOutput shared_attention_forward(const SharedAttentionInput& in) {
  const Blocks blocks(in);
  const at::Tensor weights = at::empty({blocks.batch(), blocks.all_rows(), blocks.keys()}, in.q.options());
  const at::Tensor mixed = at::empty(blocks.rows().sizes(), in.q.options());
  blocks.each([&](int64_t first, int64_t count, int64_t keys) {
    for (int64_t item = 0; item < blocks.batch(); ++item) {
      at::Tensor block = blocks.of_block(weights, item, first, count).narrow(1, 0, keys);
      at::mm_out(block, blocks.of_block(blocks.rows(), item, first, count),
                 in.k.select(0, item).narrow(0, 0, keys).t());
      float* scores = block.data_ptr<float>();
      blocks.each_row(item, first, count, keys, [&](const ScoreRow& row, int64_t i, int64_t) {
        scores_to_weights(row, scores + i * block.stride(0));
      });
      at::Tensor result = blocks.of_block(mixed, item, first, count);
      at::mm_out(result, block, in.v.select(0, item).narrow(0, 0, keys));
    }
  });
  return {mixed.view({in.q.size(0), in.q.size(1), in.q.size(2) * in.q.size(3)}), weights};
}

SharedAttentionGradient shared_attention_backward(const SharedAttentionInput& in, const at::Tensor& weights,
                                                  const at::Tensor& gradient, bool bias_gradient) {
  const Blocks blocks(in);
  const at::Tensor above = gradient.reshape(blocks.rows().sizes());
  const at::Tensor scores = at::empty_like(weights);  // their gradient
  const at::Tensor q = at::empty(blocks.rows().sizes(), in.q.options());
  SharedAttentionGradient result;
  result.k = at::empty(in.k.sizes(), in.k.options());
  result.v = at::empty(in.v.sizes(), in.v.options());
  if (bias_gradient) result.bias = at::zeros({in.q.size(1), in.q.size(2), blocks.keys()}, in.q.options());

  blocks.each([&](int64_t first, int64_t count, int64_t keys) {
    for (int64_t item = 0; item < blocks.batch(); ++item) {
      const at::Tensor seen = blocks.of_block(weights, item, first, count).narrow(1, 0, keys);
      at::Tensor block = blocks.of_block(scores, item, first, count).narrow(1, 0, keys);
      at::mm_out(block, blocks.of_block(above, item, first, count),
                 in.v.select(0, item).narrow(0, 0, keys).t());
      blocks.each_row(item, first, count, keys, [&](const ScoreRow& row, int64_t i, int64_t index) {
        weights_to_scores_gradient(
            row, seen.data_ptr<float>() + i * seen.stride(0), block.data_ptr<float>() + i * block.stride(0),
            bias_gradient ? result.bias.data_ptr<float>() + index * blocks.keys() : nullptr);
      });
      at::Tensor to = blocks.of_block(q, item, first, count);
      at::mm_out(to, block, in.k.select(0, item).narrow(0, 0, keys)).mul_(in.scale);
    }
  });
  // Keys and values collect from every query that sees them. The keys that a block of queries sees first are
  // seen by it and all later ones, so no two tasks write to the same key.
  blocks.each([&](int64_t first, int64_t, int64_t keys) {
    const int64_t from = first == 0 ? 0 : blocks.seen(first - 1), count = keys - from;
    if (count == 0) return;
    const int64_t queries = in.q.size(1) - first;
    for (int64_t item = 0; item < blocks.batch(); ++item) {
      const auto collect = [&](const at::Tensor& by_row, const at::Tensor& what, const at::Tensor& into) {
        at::Tensor to = into.select(0, item).narrow(0, from, count);
        return at::mm_out(to, blocks.of_block(by_row, item, first, queries).narrow(1, from, count).t(),
                          blocks.of_block(what, item, first, queries));
      };
      collect(scores, blocks.rows(), result.k).mul_(in.scale);
      collect(weights, above, result.v);
    }
  });
  result.q = q.view(in.q.sizes());
  return result;
}

}  // namespace melete
