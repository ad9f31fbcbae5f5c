#include "kernels/attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>

#include "kernels/attention_products.h"
#include "kernels/bf16_tiles.h"
#include "kernels/shares.h"
#include "kernels/softmax_rows.h"

namespace melete {

namespace {

// One head of one item.
struct Head {
  int64_t item, kv;  // which key head
};

float* of(const at::Tensor& tensor, const Head& head) {
  return tensor.data_ptr<float>() + head.item * tensor.stride(0) + head.kv * tensor.stride(1);
}

// Keys or values [batch, count, kv_heads, width] as both products need them.
template <class Products>
struct LaidOut {
  LaidOut(const at::Tensor& source, bool column, bool row) {
    const int64_t batch = source.size(0), count = source.size(1), heads = source.size(2),
                  width = source.size(3);
    if (column)
      by_column = at::empty({batch, heads, Products::words_by_column(count, width)}, source.options());
    if (row) by_row = at::empty({batch, heads, Products::words_by_row(count, width)}, source.options());
    at::parallel_for(0, batch * heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Head head{i / heads, i % heads};
        const float* from =
            source.data_ptr<float>() + head.item * source.stride(0) + head.kv * source.stride(2);
        if (column) Products::lay_out_by_column(from, source.stride(1), count, width, of(by_column, head));
        if (row) Products::lay_out_by_row(from, source.stride(1), count, width, of(by_row, head));
      }
    });
  }

  at::Tensor by_column, by_row;  // [batch, kv_heads, words]
};

// The rows of a range of queries. The query heads that read one key head are rows of the same products:
// query * group + g is the row of query head g * kv_heads + kv.
struct Block {
  int64_t row, rows;
  int64_t keys;  // that the last query sees
};

struct Room {
  float *scores, *rows, *other_rows, *products;
};

class Blocks {
 public:
  Blocks(const AttentionInput& in, int64_t queries_of_block)
      : batch(in.q.size(0)),
        queries(in.q.size(1)),
        heads(in.q.size(2)),
        dim(in.q.size(3)),
        keys(in.k.size(1)),
        kv_heads(in.k.size(2)),
        group(heads / kv_heads),
        // Room after the last key: transposed products take keys by kTransposedRows, from any of them on.
        step(round_up(keys + kTransposedRows, kPanel)),
        block_queries_(queries_of_block),
        causal_(in.causal),
        scale_(static_cast<float>(in.scale)),
        bias_(in.bias.defined() && in.bias.stride(2) != 1 ? in.bias.contiguous() : in.bias),
        hidden_(in.hidden.defined() ? in.hidden.contiguous() : in.hidden) {}

  // The blocks of a key head are dealt out to this many shares of equal work, whatever the number of threads.
  int64_t shares() const { return divide_up(blocks() < 64 ? 4 : 16, kv_heads); }

  // work(share, head, block, room), a share's blocks one after the other; room: for the block's scores, twice
  // for its rows, and for the products. A bias is read once for all items of a block; without one, an item's
  // keys stay in the cache for all its blocks.
  template <class Products, class Work>
  void each(Work work) const {
    at::parallel_for(0, shares() * kv_heads, 1, [&](int64_t begin, int64_t end) {
      const int64_t most = block_queries_ * group;
      const int64_t rows_end = most * (step + 2 * dim);
      const std::unique_ptr<float[]> room(
          new float[static_cast<size_t>(rows_end + Products::room({most, dim, step, keys, keys}))]);
      const Room parts{room.get(), room.get() + most * step, room.get() + most * (step + dim),
                       room.get() + rows_end};
      const int64_t items = bias_.defined() ? batch : 1;
      for (int64_t task = begin; task < end; ++task)
        for (int64_t item = 0; item < batch; item += items)
          each_block(task / kv_heads, [&](int64_t share, const Block& block) {
            for (int64_t i = item; i < item + items; ++i) work(share, Head{i, task % kv_heads}, block, parts);
          });
    });
  }

  // The block's rows of x [batch, queries, heads, dim] one after the other: where they are, or in the room.
  const float* rows_of(const at::Tensor& x, const Head& head, const Block& block, float* room) const {
    const float* from = x.data_ptr<float>() + head.item * x.stride(0) + head.kv * x.stride(2);
    if (kv_heads == 1 && x.stride(2) == dim && x.stride(1) == heads * dim) return from + block.row * dim;
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t query = (block.row + i) / group, member = (block.row + i) % group;
      std::copy_n(from + query * x.stride(1) + member * kv_heads * x.stride(2), dim, room + i * dim);
    }
    return room;
  }

  // work(how to treat a row of scores, its number in the block, its query and head as query * heads + head)
  template <class Work>
  void each_row(const Head& head, const Block& block, Work work) const {
    ScoreRow row;
    row.width = round_up(block.keys, kPanel);
    row.scale = scale_;
    if (hidden_.defined())
      row.hidden = reinterpret_cast<const uint8_t*>(hidden_.data_ptr<bool>()) + head.item * keys;
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t query = (block.row + i) / group;
      const int64_t query_head = (block.row + i) % group * kv_heads + head.kv;
      row.seen = seen(query);
      if (bias_.defined())
        row.bias = bias_.data_ptr<float>() + query * bias_.stride(0) + query_head * bias_.stride(1);
      work(row, i, query * heads + query_head);
    }
  }

  BlockShape shape(const Block& block) const { return {block.rows, dim, step, block.keys, keys}; }

  // Scores of the block times keys or values: [rows, keys] -> the block's rows of a contiguous x.
  template <class Products>
  void scores_by_keys(const float* scores, const at::Tensor& by_column, const Head& head, const Block& block,
                      const at::Tensor& x, float* room) const {
    float* to = x.data_ptr<float>() + head.item * x.stride(0) + (block.row * kv_heads + head.kv) * dim;
    Products::scores_by_keys(shape(block), scores, of(by_column, head), to, kv_heads * dim, room);
  }

  const int64_t batch, queries, heads, dim, keys, kv_heads;
  const int64_t group;  // query heads that read one key head
  const int64_t step;   // from one row of scores to the next

 private:
  // work(share, block) for the blocks of a share
  template <class Work>
  void each_block(int64_t share, Work work) const {
    for (int64_t round = 0; round * shares() < blocks(); ++round) {
      // The longest first, and every other round from the other end.
      const int64_t place = round * shares() + (round % 2 == 0 ? share : shares() - 1 - share);
      if (place >= blocks()) break;
      const int64_t first = (blocks() - 1 - place) * block_queries_;
      const int64_t count = std::min(block_queries_, queries - first);
      work(share, Block{first * group, count * group, seen(first + count - 1)});
    }
  }

  int64_t blocks() const { return divide_up(queries, block_queries_); }
  int64_t seen(int64_t query) const {
    return causal_ ? std::clamp<int64_t>(query + 1 + keys - queries, 1, keys) : keys;
  }

  int64_t block_queries_;
  bool causal_;
  float scale_;
  at::Tensor bias_, hidden_;
};

at::Tensor with_plain_rows(const at::Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

template <class Products>
AttentionOutput forward_by(const AttentionInput& in, bool keep_weights) {
  const Blocks a(in, Products::queries());
  const at::Tensor q = with_plain_rows(in.q);
  const LaidOut<Products> k(with_plain_rows(in.k), false, true), v(with_plain_rows(in.v), true, false);
  const at::Tensor mixed = at::empty({a.batch, a.queries, a.heads * a.dim}, in.q.options());
  at::Tensor weights;
  if (keep_weights) weights = at::empty({a.batch, a.kv_heads, a.queries * a.group, a.step}, in.q.options());
  a.each<Products>([&](int64_t, const Head& head, const Block& block, const Room& room) {
    float* scores = keep_weights ? of(weights, head) + block.row * a.step : room.scores;
    Products::rows_by_keys(a.shape(block), a.rows_of(q, head, block, room.rows), of(k.by_row, head), scores,
                           room.products);
    a.each_row(head, block,
               [&](const ScoreRow& row, int64_t i, int64_t) { scores_to_weights(row, scores + i * a.step); });
    a.scores_by_keys<Products>(scores, v.by_column, head, block, mixed, room.products);
  });
  return {mixed, weights};
}

template <class Products>
AttentionGradient backward_by(const AttentionInput& in, const at::Tensor& weights, const at::Tensor& gradient,
                              bool bias_gradient) {
  const Blocks a(in, Products::queries());
  const at::Tensor q = with_plain_rows(in.q);
  const at::Tensor above = with_plain_rows(gradient.reshape({a.batch, a.queries, a.heads, a.dim}));
  const LaidOut<Products> k(with_plain_rows(in.k), true, false), v(with_plain_rows(in.v), false, true);
  // Keys and values collect from every query that sees them: a sum a share, in panels of columns.
  const int64_t panels = a.dim / kPanel, padded = round_up(a.keys, kTransposedRows);
  const at::Tensor sums =
      at::zeros({a.shares(), a.batch, a.kv_heads, 2, panels, padded, kPanel}, in.q.options());
  AttentionGradient result;
  result.q = at::empty({a.batch, a.queries, a.heads, a.dim}, in.q.options());
  if (bias_gradient) result.bias = at::zeros({a.queries, a.heads, a.keys}, in.q.options());

  a.each<Products>([&](int64_t share, const Head& head, const Block& block, const Room& room) {
    float* g = room.scores;  // their gradient: it stays in the cache from its first use to its last
    const float* w = of(weights, head) + block.row * a.step;
    const float* q_rows = a.rows_of(q, head, block, room.rows);
    const float* above_rows = a.rows_of(above, head, block, room.other_rows);
    const BlockShape shape = a.shape(block);
    Products::rows_by_keys(shape, above_rows, of(v.by_row, head), g, room.products);
    a.each_row(head, block, [&](const ScoreRow& row, int64_t i, int64_t query_and_head) {
      float* to_bias = bias_gradient ? result.bias.data_ptr<float>() + query_and_head * a.keys : nullptr;
      weights_to_scores_gradient(row, w + i * a.step, g + i * a.step, to_bias);
    });
    a.scores_by_keys<Products>(g, k.by_column, head, block, result.q, room.products);
    float* into = sums.data_ptr<float>() + share * sums.stride(0) + head.item * sums.stride(1) +
                  head.kv * sums.stride(2);
    Products::collect(shape, g, q_rows, into, padded, room.products);
    Products::collect(shape, w, above_rows, into + sums.stride(3), padded, room.products);
  });
  // -> [2, batch, keys, kv_heads, dim]
  const at::Tensor all = sum_of_shares(sums);
  const at::Tensor total = all.permute({2, 0, 4, 1, 3, 5}).slice(2, 0, a.keys).flatten(4);
  result.k = total[0];
  result.v = total[1];
  return result;
}

}  // namespace

bool has_attention_kernel(const at::Tensor& q) {
  return q.device().is_cpu() && q.scalar_type() == at::kFloat && q.size(3) % kPanel == 0;
}

AttentionOutput attention_forward(const AttentionInput& in, bool keep_weights) {
  return in.round && bf16_tiles() ? forward_by<RoundedProducts>(in, keep_weights)
                                  : forward_by<ExactProducts>(in, keep_weights);
}

AttentionGradient attention_backward(const AttentionInput& in, const at::Tensor& weights,
                                     const at::Tensor& gradient, bool bias_gradient) {
  return in.round && bf16_tiles() ? backward_by<RoundedProducts>(in, weights, gradient, bias_gradient)
                                  : backward_by<ExactProducts>(in, weights, gradient, bias_gradient);
}

}  // namespace melete
