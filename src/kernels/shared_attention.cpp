#include "kernels/shared_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "kernels/panel_product.h"
#include "kernels/softmax_rows.h"

namespace melete {

namespace {

constexpr int64_t kQueries = 24;    // of a block
constexpr int64_t kCollected = 64;  // rows that keys and values collect from at once, in the first cache

// from [count, width] with rows `step` apart -> [width / kPanel, count, kPanel]
void to_panels(const float* from, int64_t step, int64_t count, int64_t width, float* to) {
  for (int64_t panel = 0; panel < width; panel += kPanel)
    for (int64_t row = 0; row < count; ++row, to += kPanel)
      std::copy_n(from + row * step + panel, kPanel, to);
}

// The same of the transpose: [ceil(count / kPanel), width, kPanel], filled up with zeros
void to_transposed_panels(const float* from, int64_t step, int64_t count, int64_t width, float* to) {
  for (int64_t panel = 0; panel < count; panel += kPanel)
    for (int64_t i = 0; i < width; ++i, to += kPanel)
      for (int64_t lane = 0; lane < kPanel; ++lane)
        to[lane] = panel + lane < count ? from[(panel + lane) * step + i] : 0.f;
}

// Keys or values of every item as both products need them.
struct Panels {
  Panels(const at::Tensor& source, bool plain, bool transposed) {
    const int64_t batch = source.size(0), count = source.size(1), width = source.size(2);
    if (plain) by_column = at::empty({batch, width / kPanel, count, kPanel}, source.options());
    if (transposed)
      by_row = at::empty({batch, round_up(count, kPanel) / kPanel, width, kPanel}, source.options());
    at::parallel_for(0, batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const float* from = source.data_ptr<float>() + item * source.stride(0);
        if (plain) to_panels(from, source.stride(1), count, width, of(by_column, item));
        if (transposed) to_transposed_panels(from, source.stride(1), count, width, of(by_row, item));
      }
    });
  }
  static float* of(const at::Tensor& panels, int64_t item) {
    return panels.data_ptr<float>() + item * panels.stride(0);
  }

  at::Tensor by_column;  // [batch, width / kPanel, count, kPanel]
  at::Tensor by_row;     // [batch, count / kPanel, width, kPanel]
};

// Rows of all heads of a range of queries.
struct Block {
  int64_t first, queries;  // queries
  int64_t row, rows;       // rows of scores: query * heads + head
  int64_t keys;            // that the last query sees
};

class Attention {
 public:
  explicit Attention(const SharedAttentionInput& in)
      : batch(in.q.size(0)),
        queries(in.q.size(1)),
        heads(in.q.size(2)),
        dim(in.q.size(3)),
        keys(in.k.size(1)),
        // Room after the last key: transposed products take keys by kTransposedRows, from any of them on.
        step(round_up(keys + kTransposedRows, kPanel)),
        causal_(in.causal),
        scale_(static_cast<float>(in.scale)),
        bias_(in.bias.defined() && in.bias.stride(2) != 1 ? in.bias.contiguous() : in.bias),
        hidden_(in.hidden.defined() ? in.hidden.contiguous() : in.hidden) {}

  int64_t seen(int64_t query) const {
    return causal_ ? std::clamp<int64_t>(query + 1 + keys - queries, 1, keys) : keys;
  }

  // Blocks are dealt out to this many shares of equal work, whatever the number of threads.
  int64_t shares() const { return blocks() < 64 ? 4 : 16; }

  // work(share, block), a share's blocks one after the other
  template <class Work>
  void each_block(Work work) const {
    at::parallel_for(0, shares(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share)
        for (int64_t round = 0; round * shares() < blocks(); ++round) {
          // The longest first, and every other round from the other end.
          const int64_t place = round * shares() + (round % 2 == 0 ? share : shares() - 1 - share);
          if (place >= blocks()) break;
          const int64_t first = (blocks() - 1 - place) * kQueries;
          const int64_t count = std::min(kQueries, queries - first);
          work(share, Block{first, count, first * heads, count * heads, seen(first + count - 1)});
        }
    });
  }

  // work(how to treat a row of scores, its number in the block)
  template <class Work>
  void each_row(int64_t item, const Block& block, Work work) const {
    ScoreRow row;
    row.width = round_up(block.keys, kPanel);
    row.scale = scale_;
    if (hidden_.defined())
      row.hidden = reinterpret_cast<const uint8_t*>(hidden_.data_ptr<bool>()) + item * keys;
    for (int64_t i = block.row; i < block.row + block.rows; ++i) {
      const int64_t query = i / heads, head = i % heads;
      row.seen = seen(query);
      if (bias_.defined())
        row.bias = bias_.data_ptr<float>() + query * bias_.stride(0) + head * bias_.stride(1);
      work(row, i - block.row);
    }
  }

  // Rows of an item times keys' or values' rows: [rows, dim] -> scores of the block, [rows, keys].
  void rows_by_keys(const float* rows, const at::Tensor& by_row, int64_t item, const Block& block,
                    float* scores) const {
    panel_product(rows + block.row * dim, dim, Panels::of(by_row, item), scores, step, block.rows, dim,
                  round_up(block.keys, kPanel));
  }
  // Scores of the block times keys or values: [rows, keys] -> [rows, dim].
  void scores_by_keys(const float* scores, const at::Tensor& by_column, int64_t item, const Block& block,
                      float* rows) const {
    for (int64_t panel = 0; panel < dim; panel += kPanel)
      panel_product(scores, step, Panels::of(by_column, item) + panel * keys, rows + block.row * dim + panel,
                    dim, block.rows, block.keys, kPanel);
  }

  const int64_t batch, queries, heads, dim, keys;
  const int64_t step;  // from one row of scores to the next

 private:
  int64_t blocks() const { return divide_up(queries, kQueries); }

  bool causal_;
  float scale_;
  at::Tensor bias_, hidden_;
};

float* of_item(const at::Tensor& tensor, int64_t item) {
  return tensor.data_ptr<float>() + item * tensor.stride(0);
}

at::Tensor with_plain_rows(const at::Tensor& x) {
  return x.stride(2) == 1 ? x : x.contiguous();
}

}  // namespace

bool has_shared_attention(const at::Tensor& q) {
  return q.device().is_cpu() && q.scalar_type() == at::kFloat && q.size(3) % kPanel == 0;
}

SharedAttentionOutput shared_attention_forward(const SharedAttentionInput& in) {
  const Attention a(in);
  const at::Tensor q = in.q.contiguous();
  const Panels k(with_plain_rows(in.k), false, true), v(with_plain_rows(in.v), true, false);
  const at::Tensor weights = at::empty({a.batch, a.queries * a.heads, a.step}, q.options());
  const at::Tensor mixed = at::empty({a.batch, a.queries, a.heads * a.dim}, q.options());
  a.each_block([&](int64_t, const Block& block) {
    for (int64_t item = 0; item < a.batch; ++item) {
      float* scores = of_item(weights, item) + block.row * a.step;
      a.rows_by_keys(of_item(q, item), k.by_row, item, block, scores);
      a.each_row(item, block,
                 [&](const ScoreRow& row, int64_t i) { scores_to_weights(row, scores + i * a.step); });
      a.scores_by_keys(scores, v.by_column, item, block, of_item(mixed, item));
    }
  });
  return {mixed, weights};
}

SharedAttentionGradient shared_attention_backward(const SharedAttentionInput& in, const at::Tensor& weights,
                                                  const at::Tensor& gradient, bool bias_gradient) {
  const Attention a(in);
  const at::Tensor q = in.q.contiguous(), above = gradient.contiguous();
  const Panels k(with_plain_rows(in.k), true, false), v(with_plain_rows(in.v), false, true);
  // Keys and values collect from every query that sees them: a sum a share, in panels of columns.
  const int64_t panels = a.dim / kPanel, padded = round_up(a.keys, kTransposedRows);
  const at::Tensor sums = at::zeros({a.shares(), a.batch, 2, panels, padded, kPanel}, q.options());
  SharedAttentionGradient result;
  result.q = at::empty(q.sizes(), q.options());
  if (bias_gradient) result.bias = at::zeros({a.queries, a.heads, a.keys}, q.options());

  a.each_block([&](int64_t share, const Block& block) {
    std::vector<float> room(static_cast<size_t>(block.rows * a.step));
    float* g = room.data();  // of the block's scores: it stays in the cache from its first use to its last
    const auto collect = [&](const float* by_row, const float* what, float* into) {
      for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t row = 0; row < block.rows; row += kCollected)
          panel_products().transposed_product(
              by_row + row * a.step, a.step, what + row * a.dim + panel * kPanel, a.dim,
              into + panel * padded * kPanel, true, std::min(kCollected, block.rows - row),
              round_up(block.keys, kTransposedRows), kPanel);
    };
    for (int64_t item = 0; item < a.batch; ++item) {
      const float* w = of_item(weights, item) + block.row * a.step;
      a.rows_by_keys(of_item(above, item), v.by_row, item, block, g);
      a.each_row(item, block, [&](const ScoreRow& row, int64_t i) {
        weights_to_scores_gradient(
            row, w + i * a.step, g + i * a.step,
            bias_gradient ? result.bias.data_ptr<float>() + (block.row + i) * a.keys : nullptr);
      });
      a.scores_by_keys(g, k.by_column, item, block, of_item(result.q, item));
      float* into = of_item(sums, share) + item * sums.stride(1);
      collect(g, of_item(q, item) + block.row * a.dim, into);
      collect(w, of_item(above, item) + block.row * a.dim, into + sums.stride(2));
    }
  });
  const auto total = sums.sum(0).transpose(2, 3).slice(2, 0, a.keys).reshape({a.batch, 2, a.keys, a.dim});
  result.k = total.select(1, 0);
  result.v = total.select(1, 1);
  return result;
}

}  // namespace melete
