// Layer normalisation, plain and gated, against LibTorch's operators in double precision.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "core/engine.h"
#include "gradient_check.h"
#include "nn/norm.h"

namespace melete {
namespace layer_norm_test {

struct NormCase {
  int64_t dim;
  NormInput input;
  bool shift;
};

class NormTest : public ::testing::TestWithParam<NormCase> {
 protected:
  NormTest() : norm_(GetParam().dim, GetParam().shift) {
    torch::manual_seed(1);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : norm_->parameters()) parameter.normal_();
  }

  int64_t width() const { return GetParam().dim * (GetParam().input == NormInput::gated ? 2 : 1); }

  // The gradients of x, weight and bias, and the value.
  std::vector<at::Tensor> results(const at::Tensor& x, const at::Tensor& above) {
    std::vector<at::Tensor> inputs = norm_->parameters();
    inputs.push_back(x);
    const at::Tensor y = norm_->forward(x, GetParam().input);
    std::vector<at::Tensor> all = torch::autograd::grad({y}, inputs, {above});
    all.push_back(y.detach());
    return all;
  }

  Norm norm_;
};

TEST_P(NormTest, ValuesAndGradients) {
  const int64_t dim = GetParam().dim;
  at::Tensor x = at::randn({3, 11, width()}) * 2 + 0.5;
  x[1][2].zero_();  // a row without deviation
  x.requires_grad_();
  const at::Tensor above = at::randn({dim, 11, 3}).permute({2, 1, 0});  // not contiguous
  const auto found = results(x, above);

  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(); };
  const at::Tensor x2 = wide(x), weight = wide(norm_->weight);
  std::vector<at::Tensor> inputs = {weight};
  if (GetParam().shift) inputs.push_back(wide(norm_->bias));
  inputs.push_back(x2);
  at::Tensor rows = x2;
  if (GetParam().input == NormInput::gated) rows = x2.narrow(2, 0, dim) * at::gelu(x2.narrow(2, dim, dim));
  const at::Tensor expected =
      at::layer_norm(rows, {dim}, weight, GetParam().shift ? inputs[1] : at::Tensor(), kNormEpsilon);
  auto right = torch::autograd::grad({expected}, inputs, {above.to(at::kDouble)});
  right.push_back(expected);
  ASSERT_EQ(found.size(), right.size());
  for (size_t i = 0; i < found.size(); ++i) expect_close(found[i], right[i], 2e-5, std::to_string(i));
}

TEST_P(NormTest, ThreadsDoNotChangeAnything) {
  const at::Tensor x = at::randn({200, width()}).requires_grad_(), above = at::randn({200, GetParam().dim});
  const int before = thread_count();
  set_threads(1);
  const auto one = results(x, above);
  set_threads(2);
  const auto two = results(x, above);
  set_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(two[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, NormTest,
                         ::testing::Values(NormCase{8, NormInput::plain, true},
                                           NormCase{512, NormInput::plain, false},
                                           NormCase{21, NormInput::plain, true},
                                           NormCase{5, NormInput::gated, true},
                                           NormCase{1365, NormInput::gated, false}));

TEST(Norm, RefusesASecondDerivative) {
  Norm norm(4);
  const at::Tensor x = at::randn({2, 4}).requires_grad_();
  EXPECT_ANY_THROW(
      torch::autograd::grad({norm(x).square().sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true));
}

}  // namespace layer_norm_test
}  // namespace melete
