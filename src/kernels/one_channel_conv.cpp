#include "kernels/one_channel_conv.h"

#include "kernels/frame_conv.h"
#include "kernels/panel_product.h"

namespace melete {

namespace {

// Neighbours that a row of the input's gradient holds: one of them alone would be too narrow a product.
constexpr int64_t kNeighbours = 8;

// The picture of every item with zeros around it, its parts side by side; read by windows of the kernel's
// size.
struct Picture {
  at::Tensor pixels;  // [batch, height + zeros, width + zeros, (re, im)]
  FrameWindows windows;

  // The windows are `depth` floats wide, which may be more than the kernel has.
  Picture(const ComplexPair& x, const at::Tensor& weight, const ConvGeometry& geometry, int64_t depth) {
    const auto [down, right] = geometry.padding;
    const int64_t batch = x.re.size(0), height = x.re.size(2), width = x.re.size(3), taps = weight.size(2);
    const int64_t rows = height + 2 * down - taps + 1, columns = width + 2 * right - weight.size(3) + 1;
    const int64_t pitch = std::max(columns - 1 + depth / 2, width + right);
    pixels = at::zeros({batch, height + 2 * down, pitch, 2}, x.re.options());
    const at::Tensor inner = pixels.narrow(1, down, height).narrow(2, right, width);
    inner.select(-1, 0).copy_(x.re.squeeze(1));
    inner.select(-1, 1).copy_(x.im.squeeze(1));
    windows = {rows, columns, 2 * pitch, 2, taps, 2 * pitch, depth};
  }
  const float* item(int64_t i) const { return pixels[i].data_ptr<float>(); }
};

// [batch, channels, height, width], channels-last -> [height, width, channels] of one item
at::Tensor frames_of(const at::Tensor& x, int64_t item) {
  return x[item].permute({1, 2, 0});
}

// The weight [out, height, width, plane, plane] of the real convolution from two planes to two.
at::Tensor real_weight(const at::Tensor& weight) {
  const at::Tensor w = weight.squeeze(1), re = w.select(-1, 0), im = w.select(-1, 1);
  return at::stack({at::stack({re, -im}, -1), at::stack({im, re}, -1)}, -1);  // [..., in, out]
}

}  // namespace

bool one_channel_fits(const at::Tensor& weight, const ConvGeometry& geometry) {
  const auto padding_fits = [&](size_t axis) {
    return geometry.stride[axis] == 1 && geometry.padding[axis] < weight.size(static_cast<int64_t>(axis) + 2);
  };
  return weight.is_cpu() && weight.scalar_type() == at::kFloat && weight.size(1) == 1 &&
         weight.size(0) % kFrameColumns == 0 && padding_fits(0) && padding_fits(1);
}

ComplexPair one_channel_conv2d(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                               const ConvGeometry& geometry) {
  const int64_t batch = x.re.size(0), out = weight.size(0), taps = weight.size(2), depth = 2 * weight.size(3);
  const Picture picture(x, weight, geometry, depth);
  const at::Tensor weights = real_weight(weight), biases = bias.t().contiguous();
  ComplexPair y = empty_pair(x.re, out, picture.windows.batch, picture.windows.rows);
  for (int64_t plane = 0; plane < 2; ++plane) {
    const at::Tensor packed =
        pack_weight(weights.select(-1, plane).reshape({out, taps, depth}).transpose(1, 2));
    for (int64_t i = 0; i < batch; ++i) {
      at::Tensor frames = frames_of(plane == 0 ? y.re : y.im, i);
      frame_product(picture.windows, picture.item(i), packed, biases[plane].data_ptr<float>(),
                    Activation::none, frames);
    }
  }
  return y;
}

ComplexPair one_channel_input_gradient(const ComplexPair& gradient, const at::Tensor& weight,
                                       std::array<int64_t, 2> size, const ConvGeometry& geometry) {
  const int64_t batch = gradient.re.size(0), out = weight.size(0), taps = weight.size(2),
                kernel = weight.size(3);
  const auto [height, width] = size;
  const int64_t rows = gradient.re.size(2), columns = gradient.re.size(3);
  const int64_t above = taps - 1 - geometry.padding[0], left = kernel - 1 - geometry.padding[1];

  // A row of the product is kNeighbours pixels of the result and sees all that any of them sees: the kernel,
  // both ways in reverse, once for each of them and moved by one.
  const int64_t seen = kernel + kNeighbours - 1;
  const at::Tensor reversed =
      real_weight(weight).flip({1, 2}).permute({1, 2, 4, 0, 3}).reshape({taps, kernel, 2 * out, 2});
  const at::Tensor matrix = at::zeros({taps, seen, 2 * out, kNeighbours, 2}, weight.options());
  for (int64_t n = 0; n < kNeighbours; ++n) matrix.narrow(1, n, kernel).select(3, n).copy_(reversed);
  const at::Tensor packed =
      pack_weight(matrix.reshape({taps, seen * 2 * out, 2 * kNeighbours}).permute({2, 1, 0}));

  // One picture after the other goes into a frame of zeros; groups at the end of a line see some of the next
  // one.
  const int64_t groups = round_up(width + kernel - 1, kNeighbours) / kNeighbours,
                pitch = groups * kNeighbours;
  const at::Tensor pixels = at::zeros({height + taps, pitch, 2 * out}, weight.options());
  const at::Tensor inner = pixels.narrow(0, above, rows).narrow(1, left, columns);
  const FrameWindows windows{
      1, height * groups, 0, kNeighbours * 2 * out, taps, pitch * 2 * out, seen * 2 * out};
  const at::Tensor result = at::empty({2, batch, 1, height, width}, weight.options());
  at::Tensor y = at::empty({1, height * groups, 2 * kNeighbours}, weight.options());
  for (int64_t i = 0; i < batch; ++i) {
    inner.narrow(2, 0, out).copy_(frames_of(gradient.re, i));
    inner.narrow(2, out, out).copy_(frames_of(gradient.im, i));
    frame_product(windows, pixels.data_ptr<float>(), packed, nullptr, Activation::none, y);
    result.select(1, i).select(1, 0).copy_(y.view({height, pitch, 2}).narrow(1, 0, width).permute({2, 0, 1}));
  }
  return {result[0], result[1]};
}

std::pair<at::Tensor, at::Tensor> one_channel_weight_gradient(const ComplexPair& gradient,
                                                              const ComplexPair& x, const at::Tensor& weight,
                                                              const ConvGeometry& geometry) {
  const int64_t out = weight.size(0), taps = weight.size(2), kernel = weight.size(3);
  const int64_t depth = round_up(2 * kernel, kTransposedRows);
  const Picture picture(x, weight, geometry, depth);
  const at::Tensor products = at::zeros({2, out, depth, taps}, weight.options()),
                   biases = at::zeros({2, out}, weight.options());
  for (int64_t plane = 0; plane < 2; ++plane)
    for (int64_t i = 0; i < x.re.size(0); ++i) {
      const auto [of_weight, of_bias] = frame_product_weight_gradient(
          picture.windows, picture.item(i), frames_of(plane == 0 ? gradient.re : gradient.im, i));
      products[plane].add_(of_weight);
      biases[plane].add_(of_bias);
    }
  // [plane of the gradient, out, width, plane of x, height]: times the conjugate of x
  const at::Tensor all = products.narrow(2, 0, 2 * kernel).reshape({2, out, kernel, 2, taps});
  const auto part = [&](int64_t of_gradient, int64_t of_x) {
    return all[of_gradient].select(2, of_x).transpose(1, 2).unsqueeze(1);
  };
  return {at::stack({part(0, 0) + part(1, 1), part(1, 0) - part(0, 1)}, -1), biases.t()};
}

}  // namespace melete
