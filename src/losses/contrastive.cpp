#include "losses/contrastive.h"

#include <cmath>
#include <limits>

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/codebook.h"

namespace melete {

namespace {

at::Tensor with_layers(const at::Tensor& x) {
  return (x.dim() == 2 ? x.unsqueeze(0) : x).to(at::kFloat);
}

struct Sides {
  at::Tensor left, right, all_left, all_right;  // [layers, rows or columns, dim]
  int64_t rows, columns;
};

Sides sides_of(const ContrastRows& pairs) {
  require(pairs.all_left.defined() == pairs.all_right.defined(),
          "[contrast] expected the columns of both sides or of neither");
  Sides sides;
  sides.left = with_layers(pairs.left);
  sides.right = with_layers(pairs.right);
  sides.all_left = pairs.all_left.defined() ? with_layers(pairs.all_left) : sides.left;
  sides.all_right = pairs.all_right.defined() ? with_layers(pairs.all_right) : sides.right;
  sides.rows = sides.left.size(1);
  sides.columns = sides.all_right.size(1);
  require(sides.left.sizes() == sides.right.sizes() && sides.all_left.sizes() == sides.all_right.sizes(),
          "[contrast] expected as many rows on both sides, got {} and {} of {} and {}", sides.rows,
          sides.right.size(1), sides.all_left.size(1), sides.columns);
  require(pairs.first_row >= 0 && pairs.first_row + sides.rows <= sides.columns,
          "[contrast] rows {} to {} do not stand among {} columns", pairs.first_row,
          pairs.first_row + sides.rows, sides.columns);
  require(sides.columns > 1,
          "[contrast] a pair needs others to be held against, got a batch of 1; try a larger one");
  return sides;
}

// [layers, rows, columns]
at::Tensor similarities(const at::Tensor& rows, const at::Tensor& columns) {
  return at::matmul(rows, columns.transpose(1, 2));
}

// True where a row meets its own partner: [rows, columns]
at::Tensor own_pairs(const Sides& sides, int64_t first_row) {
  const auto options = sides.left.options().dtype(at::kLong);
  const at::Tensor rows = at::arange(first_row, first_row + sides.rows, options).unsqueeze(1);
  return rows.eq(at::arange(sides.columns, options).unsqueeze(0));
}

}  // namespace

at::Tensor softmax_contrast(const ContrastRows& pairs, const at::Tensor& scale, bool decoupled) {
  const Sides sides = sides_of(pairs);
  const at::Tensor rows = similarities(sides.left, sides.all_right) * scale;
  const at::Tensor matching = rows.diagonal(pairs.first_row, 1, 2);  // [layers, rows]
  // Alone, the other direction is the same matrix read by columns.
  const at::Tensor columns =
      pairs.all_left.defined() ? similarities(sides.right, sides.all_left) * scale : rows.transpose(1, 2);
  const at::Tensor own = decoupled ? own_pairs(sides, pairs.first_row) : at::Tensor();
  const auto denominator = [&](const at::Tensor& x) {
    const double nothing = -std::numeric_limits<double>::infinity();
    return at::logsumexp(decoupled ? x.masked_fill(own, nothing) : x, -1);
  };
  const at::Tensor loss = 0.5 * (denominator(rows) + denominator(columns)) - matching;
  return loss.sum() / sides.columns;
}

at::Tensor sigmoid_contrast(const ContrastRows& pairs, const at::Tensor& scale, const at::Tensor& bias) {
  const Sides sides = sides_of(pairs);
  const at::Tensor scores = similarities(sides.left, sides.all_right) * scale + bias;
  const at::Tensor sign = own_pairs(sides, pairs.first_row).to(scores.scalar_type()) * 2 - 1;
  return -at::log_sigmoid(scores * sign).sum() / sides.columns;
}

void describe(Schema& schema, ContrastConfig& config) {
  schema
      .option("kind", config.kind,
              "softmax over the batch; decoupled: the same without the pair itself below the line; sigmoid: "
              "every pair for itself")
      .one_of({"softmax", "decoupled", "sigmoid"});
  schema.option("scale", config.scale, "of the similarities at the start (one over the temperature)")
      .at_least(1e-3);
  schema.option("bias", config.bias, "sigmoid: added to the scaled similarities, at the start");
}

ContrastImpl::ContrastImpl(const ContrastConfig& config, int64_t layers) : config_(config) {
  log_scale = register_parameter("log_scale", at::full({layers, 1, 1}, std::log(config.scale), at::kFloat));
  if (config.kind == "sigmoid")
    bias = register_parameter("bias", at::full({layers, 1, 1}, config.bias, at::kFloat));
}

at::Tensor ContrastImpl::forward(const ContrastRows& pairs) {
  if (config_.kind == "sigmoid") return sigmoid_contrast(pairs, scale(), bias);
  return softmax_contrast(pairs, scale(), config_.kind == "decoupled");
}

LayerHeadsImpl::LayerHeadsImpl(int64_t layers, int64_t in, int64_t out) {
  gain = register_parameter("gain", at::ones({layers, 1, in}));
  weight = register_parameter("weight", at::randn({layers, in, out}));
  bias = register_parameter("bias", at::randn({layers, 1, out}));
}

at::Tensor LayerHeadsImpl::forward(const at::Tensor& pooled) {
  const at::Tensor normalised = at::layer_norm(pooled, {pooled.size(-1)}) * gain;
  return unit_vectors(at::baddbmm(bias, normalised, weight));
}

LayerContrastImpl::LayerContrastImpl(const ContrastConfig& config, int64_t layers, int64_t left_dim,
                                     int64_t right_dim, int64_t dim) {
  left = register_module("left", LayerHeads(layers, left_dim, dim));
  right = register_module("right", LayerHeads(layers, right_dim, dim));
  contrast = register_module("contrast", Contrast(config, layers));
}

}  // namespace melete
