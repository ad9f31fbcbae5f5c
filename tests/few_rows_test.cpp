// Products of few rows with weights in every storage, against double precision.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "gradient_check.h"
#include "kernels/few_rows.h"
#include "nn/feed_forward.h"
#include "nn/position_bias.h"
#include "nn/transformer_step.h"

namespace melete {
namespace few_rows_test {

constexpr int64_t kScaled = 64;  // inputs of an output that share a scale in int8

// What int8 makes of the weights, read out by products with unit vectors.
at::Tensor rounded_to_int8(const at::Tensor& weight) {
  const RowWeights packed(weight, WeightStorage::int8);
  std::vector<at::Tensor> columns;
  for (const at::Tensor& some : at::eye(weight.size(1)).split(kFewRows))
    columns.push_back(packed.multiply(some, {}));
  return at::cat(columns).t().contiguous();
}

// Half a step of each weight's block, with room for float32's own rounding. [out, in], double
at::Tensor largest_error(const at::Tensor& weight) {
  const int64_t in = weight.size(1), blocks = (in + kScaled - 1) / kScaled;
  const at::Tensor padded = at::constant_pad_nd(weight.to(at::kDouble), {0, blocks * kScaled - in});
  const at::Tensor largest = padded.abs().view({-1, blocks, kScaled}).amax(-1, true);
  return (largest / 127 * 0.50001).expand({-1, -1, kScaled}).flatten(1).narrow(1, 0, in);
}

TEST(FewRows, ProductsOfPlainAndBf16Weights) {
  torch::manual_seed(1);
  for (const int64_t in : {1, 15, 16, 31, 32, 48, 1365})
    for (const int64_t rows : {1, 2, 3, 8}) {
      const at::Tensor weight = at::randn({13, in}), x = at::randn({rows, in}), bias = at::randn({13});
      const at::Tensor expected =
          at::addmm(bias.to(at::kDouble), x.to(at::kDouble), weight.to(at::kDouble).t());
      expect_close(RowWeights(weight, WeightStorage::float32).multiply(x, bias), expected, 1e-5);
      const RowWeights packed(weight, WeightStorage::bf16);
      at::Tensor y = at::ones({rows, 20});
      packed.multiply(x.data_ptr<float>(), rows, nullptr, y.data_ptr<float>(), 20, true);
      const at::Tensor rounded = weight.to(at::kBFloat16).to(at::kDouble);
      expect_close(y.narrow(1, 0, 13), x.to(at::kDouble).mm(rounded.t()) + 1, 1e-5);
      EXPECT_TRUE(y.narrow(1, 13, 7).eq(1).all().item<bool>()) << "what lies between rows is left alone";
    }
}

TEST(FewRows, Int8RoundsByHalfAStepOfItsBlockAtMost) {
  torch::manual_seed(2);
  for (const int64_t in : {1, 15, 63, 64, 65, 130, 512, 1365}) {
    at::Tensor weight = at::randn({9, in}) * at::exp(3 * at::randn({9, 1}));
    weight[3].zero_();
    weight[4].fill_(-0.7);
    weight[5].narrow(0, 0, std::min(in, kScaled)).mul_(1e6);  // its other blocks keep their own scale
    const at::Tensor error = (rounded_to_int8(weight).to(at::kDouble) - weight).abs();
    EXPECT_TRUE((error <= largest_error(weight)).all().item<bool>()) << in;
    EXPECT_EQ(error[3].max().item<double>(), 0);
  }
}

TEST(FewRows, Int8ProductsAreThoseOfTheRoundedWeights) {
  torch::manual_seed(3);
  for (const int64_t in : {1, 15, 64, 65, 127, 512, 1365})
    for (const int64_t rows : {1, 2, 3, 8})
      for (const int64_t out : {1, 4, 13}) {
        const at::Tensor weight = at::randn({out, in}), x = at::randn({rows, in}), bias = at::randn({out});
        const at::Tensor rounded = rounded_to_int8(weight).to(at::kDouble), wide = x.to(at::kDouble);
        const RowWeights packed(weight, WeightStorage::int8);
        const at::Tensor y = packed.multiply(x, bias);
        expect_close(y, at::addmm(bias.to(at::kDouble), wide, rounded.t()), 1e-5);
        const at::Tensor exact = at::addmm(bias.to(at::kDouble), wide, weight.to(at::kDouble).t());
        const at::Tensor bound = wide.abs().mm(largest_error(weight).t()) + 1e-5 * exact.abs().max();
        EXPECT_TRUE(((y - exact).abs() <= bound).all().item<bool>()) << in << ' ' << rows;

        at::Tensor room = at::ones({rows, 20});
        packed.multiply(x.data_ptr<float>(), rows, nullptr, room.data_ptr<float>(), 20, true);
        expect_close(room.narrow(1, 0, out), wide.mm(rounded.t()) + 1, 1e-5);
        EXPECT_TRUE(room.narrow(1, out, 20 - out).eq(1).all().item<bool>());
      }
}

TEST(FewRows, Int8TakesHugeAndSmallValues) {
  torch::manual_seed(4);
  const at::Tensor x = at::randn({1, 96}).clamp(-2, 2) / 100;
  for (const double size : {3e37, 1e20, 1e-20, 1e-27}) {
    const at::Tensor weight = at::rand({5, 96}) * size;
    const at::Tensor y = RowWeights(weight, WeightStorage::int8).multiply(x, {});
    const at::Tensor exact = x.to(at::kDouble).mm(weight.to(at::kDouble).t());
    EXPECT_LT(((y - exact).abs() / exact.abs().max()).max().item<double>(), 0.02) << size;
  }
  // Nothing that a model could mean.
  EXPECT_TRUE(
      RowWeights(at::full({5, 96}, 1e-38), WeightStorage::int8).multiply(x, {}).eq(0).all().item<bool>());
}

TEST(FewRows, ABrokenWeightShowsInEveryStorage) {
  for (const auto storage : {WeightStorage::float32, WeightStorage::bf16, WeightStorage::int8})
    for (const double broken : {std::nan(""), -std::nan(""), static_cast<double>(INFINITY)}) {
      at::Tensor weight = at::randn({3, 100});
      weight[1][70] = broken;
      const at::Tensor y = RowWeights(weight, storage).multiply(at::randn({2, 100}), {});
      EXPECT_FALSE(y.select(1, 1).isfinite().any().item<bool>());
      EXPECT_TRUE(y.select(1, 0).isfinite().all().item<bool>());
      EXPECT_TRUE(y.select(1, 2).isfinite().all().item<bool>());
    }
}

TEST(FewRows, ARowDoesNotDependOnTheOthers) {
  torch::manual_seed(5);
  const at::Tensor weight = at::randn({14, 333}), x = at::randn({7, 333});
  for (const auto storage : {WeightStorage::float32, WeightStorage::bf16, WeightStorage::int8}) {
    const RowWeights packed(weight, storage);
    const at::Tensor together = packed.multiply(x, {});
    for (int64_t row = 0; row < 7; ++row)
      EXPECT_TRUE(packed.multiply(x.narrow(0, row, 1), {}).equal(together.narrow(0, row, 1)));
    for (int64_t o = 0; o < 14; ++o)  // nor an output on those beside it
      EXPECT_TRUE(
          RowWeights(weight.narrow(0, o, 1), storage).multiply(x, {}).equal(together.narrow(1, o, 1)));
  }
}

TEST(FewRows, GradientsPassFrozenWeights) {
  torch::manual_seed(8);
  for (const int64_t in : {1, 15, 64, 1023, 2100})
    for (const int64_t out : {1, 4, 7, 33})
      for (const int64_t rows : {1, 3, 8}) {
        torch::nn::Linear layer(in, out);
        for (const at::Tensor& weight : layer->parameters()) weight.set_requires_grad(false);
        const at::Tensor x = at::randn({rows, in}).requires_grad_(), weights = at::randn({rows, out});
        const at::Tensor y = project(x, layer);
        expect_close(y, at::linear(x, layer->weight, layer->bias).to(at::kDouble), 1e-5);
        (y * weights).sum().backward();
        expect_close(x.grad(), weights.to(at::kDouble).mm(layer->weight.to(at::kDouble)), 1e-5);
        EXPECT_FALSE(layer->weight.grad().defined());
      }
}

TEST(FewRows, PrecisionsHaveOneName) {
  EXPECT_EQ(weight_precisions(), (std::vector<std::string>{"fp32", "bf16", "int8"}));
  EXPECT_EQ(weight_storage("int8"), WeightStorage::int8);
  EXPECT_THROW(weight_storage("int4"), Error);
}

struct SmallModel {
  SmallModel() {
    torch::manual_seed(6);
    config.dim = 72;
    config.depth = 3;
    config.heads = 2;
    config.head_dim = 16;
    model = Transformer(config);
    x = at::randn({1, 12, config.dim});
    table = at::randn({12, config.heads});
  }
  at::Tensor whole() { return model->forward(x, causal_bias(table, 0, 12), {}, {}).narrow(1, 3, 9); }
  at::Tensor stepwise(WeightStorage storage) {
    TransformerCache cache(config, 1, 12);
    model->forward(x.narrow(1, 0, 3), causal_bias(table, 0, 3), {}, {}, nullptr, &cache);
    TransformerStep step(*model, 12, {}, {}, storage);
    std::vector<at::Tensor> outputs;
    for (int64_t i = 3; i < 12; ++i)
      outputs.push_back(step.forward(x.select(1, i), causal_bias(table, i, i + 1).squeeze(0), cache));
    return at::stack(outputs, 1);
  }

  TransformerConfig config;
  Transformer model{nullptr};
  at::Tensor x, table;
};

TEST(FewRows, PackedStepsStayCloseToThoseInFloat32) {
  const at::NoGradGuard no_grad;
  SmallModel small;
  const at::Tensor exact = small.stepwise(WeightStorage::float32);
  expect_close(exact, small.whole(), 1e-5);
  const auto off = [&](WeightStorage storage) {
    return ((small.stepwise(storage) - exact).norm() / exact.norm()).item<double>();
  };
  const double bf16 = off(WeightStorage::bf16), int8 = off(WeightStorage::int8);
  RecordProperty("bf16", std::to_string(bf16));
  RecordProperty("int8", std::to_string(int8));
  EXPECT_GT(int8, bf16);
  EXPECT_LT(bf16, 0.005);  // 0.0027 measured
  EXPECT_LT(int8, 0.02);   // 0.0061 measured
  EXPECT_GT(int8, 0);
}

}  // namespace few_rows_test
}  // namespace melete
