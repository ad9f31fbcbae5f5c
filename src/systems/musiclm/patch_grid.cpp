#include "systems/musiclm/patch_grid.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "kernels/offset_gather.h"

namespace melete::musiclm {

namespace {

struct OffsetGather : torch::autograd::Function<OffsetGather> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& places, int64_t middle) {
    context->save_for_backward({places});
    context->saved_data["middle"] = middle;
    context->saved_data["offsets"] = table.size(0);
    return offset_gather_forward(table, places, middle);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {
        offset_gather_backward(gradients[0], context->get_saved_variables()[0],
                               context->saved_data["middle"].toInt(), context->saved_data["offsets"].toInt()),
        {},
        {}};
  }
};

}  // namespace

at::Tensor sine_positions(const PatchGrid& grid, int64_t dim, const at::TensorOptions& options) {
  require(dim % 4 == 0, "[audio tower] sine positions need a width in multiples of 4, got {}", dim);
  constexpr double kLongestPeriod = 10000;  // as in the first transformer
  const int64_t quarter = dim / 4;
  const auto steps = static_cast<double>(std::max<int64_t>(quarter - 1, 1));
  const at::Tensor speed = at::pow(kLongestPeriod, -at::arange(quarter, options) / steps);
  const at::Tensor patch = at::arange(grid.patches(), options.dtype(at::kLong));
  const auto angle = [&](const at::Tensor& place) {
    return place.to(options.dtype()).unsqueeze(1) * speed.unsqueeze(0);
  };
  const at::Tensor column = angle(at::remainder(patch, grid.columns));
  const at::Tensor band = angle(at::div(patch, grid.columns, "floor"));
  return at::cat({column.sin(), column.cos(), band.sin(), band.cos()}, 1);
}

at::Tensor offset_table(const PatchGrid& grid, const at::TensorOptions& options) {
  const at::Tensor band = at::arange(1 - grid.bands, grid.bands, options);
  const at::Tensor column = at::arange(1 - grid.columns, grid.columns, options);
  const int64_t bands = band.size(0), columns = column.size(0);
  return at::stack({band.unsqueeze(1).expand({bands, columns}).flatten(), column.repeat(bands)}, 1);
}

at::Tensor gather_offsets(const at::Tensor& by_offset, const at::Tensor& patches, const PatchGrid& grid) {
  // In rows as long as there are column offsets, the difference of two numbers is the number of their offset.
  const int64_t row = 2 * grid.columns - 1;
  const at::Tensor number =
      at::div(patches, grid.columns, "floor") * row + at::remainder(patches, grid.columns);
  const int64_t middle = (grid.bands - 1) * row + grid.columns - 1;
  return has_offset_gather(by_offset) ? OffsetGather::apply(by_offset, number, middle)
                                      : offset_gather_plain(by_offset, number, middle);
}

}  // namespace melete::musiclm
