// RMS norms, plain, with a gain a head, and adaptive, against the plain formula in double precision.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "core/engine.h"
#include "gradient_check.h"
#include "nn/norm.h"

namespace melete {
namespace rms_norm_test {

at::Tensor wide(const at::Tensor& x) {
  return x.detach().to(at::kDouble).requires_grad_();
}

at::Tensor formula(const at::Tensor& x, const at::Tensor& gain) {
  return x / x.norm(2, -1, true).clamp_min(1e-12) * std::sqrt(static_cast<double>(x.size(-1))) * gain;
}

std::vector<at::Tensor> results(const at::Tensor& y, std::vector<at::Tensor> inputs,
                                const at::Tensor& above) {
  std::vector<at::Tensor> all = torch::autograd::grad({y}, inputs, {above.to(y.scalar_type())});
  all.push_back(y.detach());
  return all;
}

void expect_all_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(found.size(), right.size());
  for (size_t i = 0; i < found.size(); ++i) expect_close(found[i], right[i], 1e-5, std::to_string(i));
}

TEST(RmsNorm, ValuesAndGradients) {
  for (const int64_t dim : {2, 5, 64, 511}) {
    RmsNorm norm(dim);
    EXPECT_TRUE(norm->weight.equal(at::ones({dim})));
    norm->weight.set_data(noise({dim}, 1));
    const at::Tensor x = (noise({3, 11, dim}, 2) * 2 + 0.5).requires_grad_();
    const at::Tensor above = noise({dim, 11, 3}, 3).permute({2, 1, 0});  // not contiguous
    const at::Tensor x2 = wide(x), weight2 = wide(norm->weight);
    expect_all_close(results(norm(x), {x, norm->weight}, above),
                     results(formula(x2, weight2), {x2, weight2}, above));
  }
}

TEST(RmsNorm, AGainForEveryHead) {
  const at::Tensor x = noise({2, 7, 3, 16}, 1).transpose(0, 1).requires_grad_();
  const at::Tensor weight = noise({3, 16}, 2).requires_grad_(), above = noise({7, 2, 3, 16}, 3);
  const at::Tensor x2 = wide(x), weight2 = wide(weight);
  expect_all_close(results(rms_norm(x, weight), {x, weight}, above),
                   results(formula(x2, weight2), {x2, weight2}, above));
}

TEST(RmsNorm, ARowOfZerosStaysZero) {
  RmsNorm norm(8);
  const at::Tensor x = at::zeros({2, 8}).requires_grad_();
  const at::Tensor y = norm(x);
  EXPECT_TRUE(y.equal(at::zeros({2, 8})));
  EXPECT_TRUE(torch::autograd::grad({y.sum()}, {x})[0].isfinite().all().item<bool>());
}

TEST(AdaptiveRmsNorm, StartsAsRmsNorm) {
  AdaptiveRmsNorm norm(16, 6);
  const at::Tensor x = noise({2, 5, 16}, 1);
  expect_close(norm(x, noise({2, 6}, 2)), formula(x, at::ones({16})), 1e-5);
}

TEST(AdaptiveRmsNorm, ValuesAndGradients) {
  for (const int64_t dim : {3, 64}) {
    AdaptiveRmsNorm norm(dim, 6);
    std::vector<at::Tensor> inputs, inputs2;
    uint64_t seed = 10;
    for (at::Tensor& parameter : norm->parameters()) {
      parameter.set_data(noise(parameter.sizes(), seed++));
      inputs.push_back(parameter);
      inputs2.push_back(wide(parameter));
    }
    const at::Tensor x = noise({3, 4, 7, dim}, 2).requires_grad_();
    const at::Tensor condition = noise({3, 6}, 3).requires_grad_();
    const at::Tensor above = noise({dim, 7, 4, 3}, 4).permute({3, 2, 1, 0});
    inputs.insert(inputs.end(), {x, condition});
    inputs2.insert(inputs2.end(), {wide(x), wide(condition)});
    const at::Tensor gain = at::linear(inputs2[5], inputs2[0], inputs2[1]).view({3, 1, 1, dim});
    const at::Tensor shift = at::linear(inputs2[5], inputs2[2], inputs2[3]).view({3, 1, 1, dim});
    expect_all_close(results(norm(x, condition), inputs, above),
                     results(formula(inputs2[4], gain) + shift, inputs2, above));
  }
}

TEST(RmsNorm, ThreadsDoNotChangeAnything) {
  AdaptiveRmsNorm adaptive(40, 6);
  for (at::Tensor& parameter : adaptive->parameters()) parameter.set_data(noise(parameter.sizes(), 1));
  RmsNorm plain(40);
  const at::Tensor x = noise({3, 100, 40}, 2).requires_grad_(), above = noise({3, 100, 40}, 3);
  const at::Tensor condition = noise({3, 6}, 4).requires_grad_();
  const auto all = [&] {
    auto found = results(adaptive(x, condition), {x, condition, adaptive->scale->weight}, above);
    for (const at::Tensor& t : results(plain(x), {x, plain->weight}, above)) found.push_back(t);
    return found;
  };
  const int before = thread_count();
  set_threads(1);
  const auto one = all();
  set_threads(3);
  const auto three = all();
  set_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
}

}  // namespace rms_norm_test
}  // namespace melete
