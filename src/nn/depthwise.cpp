#include "nn/depthwise.h"

#include <torch/autograd.h>

#include "core/base/error.h"
#include "kernels/depthwise.h"

namespace melete {

namespace {

struct DepthwiseOverTime : torch::autograd::Function<DepthwiseOverTime> {
  // taps [kernel, channels]
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& taps, const at::Tensor& bias) {
    context->save_for_backward({x, taps});
    return depthwise(x, taps, bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].contiguous();
    // The way back is the same convolution with its taps reversed.
    return {depthwise(gradient, saved[1].flip(0), {}),
            depthwise_taps_gradient(saved[0], gradient, saved[1].size(0)),
            gradient.sum(at::IntArrayRef{0, 1})};
  }
};

}  // namespace

at::Tensor depthwise_over_time(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  require(x.dim() == 3 && weight.dim() == 3 && weight.size(0) == x.size(2) && weight.size(1) == 1 &&
              weight.size(2) % 2 == 1,
          "[depthwise] expected frames of {} channels and an odd kernel, got {} and a kernel of {}",
          weight.size(0), x.size(-1), weight.size(-1));
  if (has_depthwise(x) && has_depthwise(weight) && has_depthwise(bias))
    return DepthwiseOverTime::apply(x, weight.squeeze(1).t(), bias);
  const int64_t half = weight.size(2) / 2;
  return at::conv1d(x.transpose(1, 2), weight, bias, 1, half, 1, x.size(2)).transpose(1, 2);
}

}  // namespace melete
