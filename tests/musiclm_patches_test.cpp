// Position biases by offset: the fused gather against LibTorch's operations, and on a grid of patches.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "kernels/offset_gather.h"
#include "systems/musiclm/patch_grid.h"

namespace melete::musiclm {
namespace musiclm_patches_test {

TEST(OffsetGather, EqualsPlainOperationsWithItsGradient) {
  torch::manual_seed(1);
  const PatchGrid grid{3, 7};
  const at::Tensor table = at::randn({grid.distinct_offsets(), 5}).set_requires_grad(true);
  const at::Tensor kept = at::randperm(grid.patches()).narrow(0, 0, 13);
  const at::Tensor weight = at::randn({13, 5, 13});
  const at::Tensor fused = gather_offsets(table, kept, grid);
  EXPECT_TRUE(fused.is_contiguous());
  (fused * weight).sum().backward();
  const at::Tensor fused_gradient = table.grad().clone();
  // By hand: where a patch is, and how far from the other.
  const int64_t row = 2 * grid.columns - 1;
  const at::Tensor place = kept.div(grid.columns, "floor") * row + kept.remainder(grid.columns);
  const at::Tensor plain = offset_gather_plain(table, place, (grid.bands - 1) * row + grid.columns - 1);
  EXPECT_TRUE(at::equal(fused, plain));
  table.mutable_grad().zero_();
  (plain * weight).sum().backward();
  EXPECT_TRUE(at::allclose(fused_gradient, table.grad(), 1e-5, 1e-5));
}

TEST(OffsetGather, EveryPairTakesItsOffset) {
  const PatchGrid grid{2, 3};
  const at::Tensor offsets = offset_table(grid, at::kFloat);  // [offsets, 2] as a table of two heads
  const at::Tensor all = gather_offsets(offsets, at::arange(6), grid);
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 6; ++j) {
      EXPECT_EQ(all[i][0][j].item<float>(), static_cast<float>(i / 3 - j / 3));
      EXPECT_EQ(all[i][1][j].item<float>(), static_cast<float>(i % 3 - j % 3));
    }
}

}  // namespace musiclm_patches_test
}  // namespace melete::musiclm
