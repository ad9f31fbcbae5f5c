#include "kernels/minimal_filter.h"

#include <ATen/core/ivalue.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <vector>

#include "kernels/minimal_filter_kernels.h"
#include "kernels/minimal_filter_tiles.h"
#include "kernels/panel_product.h"
#include "kernels/shares.h"
#include "kernels/vector_targets.h"

namespace melete {

namespace {

using namespace minimal_filter;

// What a plan's products cost, for whoever counts. (`melete bench`)
c10::IValue product_flops(const Plan& plan) {
  return 6.0 * static_cast<double>(plan.tiles() * plan.points()) *
         static_cast<double>(plan.depth() * plan.columns());
}

using Planes = std::array<const float*, 2>;

// Tiles [first, first + count) of both planes of the input. to: [point][plane][rows][depth_step]
void transform_input(const Plan& plan, const Planes& from, int64_t first, int64_t count, int64_t rows,
                     float* to) {
  const Axis &height = plan.height, &width = plan.width;
  const TwoPasses passes(kernels().input(width.points), kernels().input(height.points), height.points,
                         width.points);
  const std::vector<float> zeros(static_cast<size_t>(plan.in));
  const int64_t step = plan.depth_step();
  for (int64_t plane = 0; plane < 2; ++plane) {
    TilePixels<const float> pixels(plan, from[plane], zeros.data(), plan.in, true, false);
    const auto places =
        point_places(to + plane * rows * step, height.points, width.points, 2 * rows * step, true);
    for (int64_t t = 0; t < count; ++t)
      for (int64_t p = 0; p < height.in_step; ++p)
        for (int64_t q = 0; q < width.in_step; ++q) {
          const auto [pointers, offset] = pixels(first + t, p, q);
          passes.run(pointers, offset, places.data(), t * step + (p * width.in_step + q) * plan.in, plan.in);
        }
  }
}

// The same for the gradient of the output, without phases. to: [point][plane][rows][columns_step]
void transform_gradient(const Plan& plan, const Planes& from, int64_t first, int64_t count, int64_t rows,
                        float* to) {
  const Axis &height = plan.height, &width = plan.width;
  const TwoPasses passes(kernels().output_gradient(width.points, width.outputs),
                         kernels().output_gradient(height.points, height.outputs), height.outputs,
                         width.points);
  const std::vector<float> zeros(static_cast<size_t>(plan.out));
  const int64_t step = plan.columns_step();
  for (int64_t plane = 0; plane < 2; ++plane) {
    TilePixels<const float> pixels(plan, from[plane], zeros.data(), plan.out, false, false);
    const auto places =
        point_places(to + plane * rows * step, height.points, width.points, 2 * rows * step, true);
    for (int64_t t = 0; t < count; ++t) {
      const auto [pointers, offset] = pixels(first + t, 0, 0);
      passes.run(pointers, offset, places.data(), t * step, plan.out);
    }
  }
}

// from: [point][plane][rows][columns_step]; bias [plane][out] or null
void transform_output(const Plan& plan, const float* from, int64_t first, int64_t count, int64_t rows,
                      const float* bias, const std::array<float*, 2>& to) {
  const Axis &height = plan.height, &width = plan.width;
  const TwoPasses passes(kernels().output(width.points, width.outputs),
                         kernels().output(height.points, height.outputs), height.points, width.outputs);
  std::vector<float> nowhere(static_cast<size_t>(plan.out));
  const int64_t step = plan.columns_step();
  for (int64_t plane = 0; plane < 2; ++plane) {
    TilePixels<float> pixels(plan, to[plane], nowhere.data(), plan.out, false, true);
    const auto places =
        point_places(from + plane * rows * step, height.points, width.points, 2 * rows * step, false);
    for (int64_t t = 0; t < count; ++t)
      for (int64_t p = 0; p < height.out_step; ++p)
        for (int64_t q = 0; q < width.out_step; ++q) {
          const auto [pointers, offset] = pixels(first + t, p, q);
          passes.run(places.data(), t * step + (p * width.out_step + q) * plan.out, pointers, offset,
                     plan.out, bias ? bias + plane * plan.out : nullptr);
        }
  }
}

constexpr int64_t kMostTaps = 16;            // of both axes and all phases
constexpr int64_t kGroup = kChunk / kPanel;  // rows of a panel taken at a time

// A piece of a weight [out, in, height, width, 2] for Gauss's three products: kGroup rows (depth) by kPanel
// lanes (columns). Rows are input channels and lanes output channels; backward it is the other way round, and
// taps come in reverse.
class WeightPiece {
 public:
  WeightPiece(const Plan& plan, bool backward)
      : height_(plan.height),
        width_(plan.width),
        backward_(backward),
        down_(std::max(height_.in_step, height_.out_step)),
        right_(std::max(width_.in_step, width_.out_step)),
        taps_(height_.taps * down_ * width_.taps * right_),
        lane_step_(2 * taps_ * (backward ? 1 : plan.in)),
        row_step_(2 * taps_ * (backward ? plan.out : 1)) {}

  int64_t phases() const { return down_ * right_; }

  // Calls work(three values of the piece, complex value of the weight) for all taps and phases.
  template <class Float, class Work>
  MELETE_INLINE void visit(Float* weight, int64_t row, int64_t lane, const Work& work) {
    for (int64_t r = 0; r < kGroup; ++r)
      for (int64_t l = 0; l < kPanel; ++l) {
        Float* at = weight + (row + r) * row_step_ + (lane + l) * lane_step_;
        // Of the next piece: lanes are too far apart for the processor to foresee.
        __builtin_prefetch(at + kGroup * row_step_);
        __builtin_prefetch(at + kGroup * row_step_ + 16);
        for (int64_t tap = 0; tap < taps_; ++tap)
          work(values_[0][tap][r][l], values_[1][tap][r][l], values_[2][tap][r][l], at + 2 * tap);
      }
  }

  // Where the taps of one phase are.
  Places<float> places(int64_t product, int64_t phase, bool by_column) {
    Places<float> places{};
    for (int64_t i = 0; i < height_.taps; ++i)
      for (int64_t j = 0; j < width_.taps; ++j) {
        const int64_t y = (backward_ ? height_.taps - 1 - i : i) * down_ + phase / right_,
                      x = (backward_ ? width_.taps - 1 - j : j) * right_ + phase % right_;
        places[static_cast<size_t>(by_column ? j * height_.taps + i : i * width_.taps + j)] =
            values_[product][y * width_.taps * right_ + x][0];
      }
    return places;
  }

 private:
  Axis height_, width_;
  bool backward_;
  int64_t down_, right_, taps_, lane_step_, row_step_;
  alignas(64) float values_[3][kMostTaps][kGroup][kPanel];
};

// Pieces of a weight are numbered by lane, then row.
std::pair<int64_t, int64_t> place_of_piece(const Plan& plan, int64_t piece) {
  const int64_t rows = plan.in / kGroup;
  return {piece % rows * kGroup, piece / rows * kPanel};
}

template <class Work>
void over_pieces(const Plan& plan, const Work& work) {
  constexpr int64_t kFewest = 8;  // worth a thread
  at::parallel_for(0, plan.in / kGroup * (plan.out / kPanel), kFewest, work);
}

// weight [out, in, height, width, 2] -> [point][product][columns / kPanel][depth][kPanel]. Backward: of the
// conjugate.
at::Tensor transform_filter(const Plan& plan, const at::Tensor& weight, bool backward) {
  const Axis &height = plan.height, &width = plan.width;
  const int64_t depth = plan.depth(), size = depth * plan.columns();
  const at::Tensor result = at::empty({plan.points(), 3, size}, weight.options());
  const float* from = weight.data_ptr<float>();
  float* to = result.data_ptr<float>();
  const float sign = backward ? -1 : 1;
  over_pieces(plan, [&](int64_t first, int64_t last) {
    const TwoPasses passes(kernels().filter(width.points, width.taps),
                           kernels().filter(height.points, height.taps), height.taps, width.points);
    WeightPiece piece(plan, backward);
    for (int64_t at_piece = first; at_piece < last; ++at_piece) {
      const auto [row, lane] = place_of_piece(plan, at_piece);
      piece.visit(from, row, lane, [&](float& a, float& b, float& c, const float* at) {
        const float re = at[0], im = sign * at[1];
        a = re;
        b = im - re;
        c = -(re + im);
      });
      for (int64_t product = 0; product < 3; ++product) {
        const auto places = point_places(to + product * size, height.points, width.points, 3 * size, true);
        for (int64_t phase = 0; phase < piece.phases(); ++phase) {
          const int64_t k = row + (backward ? 0 : phase * plan.in),
                        column = lane + (backward ? phase * plan.out : 0);
          passes.run(piece.places(product, phase, false).data(), 0, places.data(),
                     column * depth + k * kPanel, kChunk);
        }
      }
    }
  });
  return result;
}

// Tiles of a block, whose transforms should stay in the second cache; where the weights are too large for it
// anyway, enough tiles to make reading them worth it.
int64_t block_tiles(const Plan& plan) {
  constexpr int64_t kBytes = 700 << 10, kWeightBytes = 600 << 10, kFewest = 96;
  const int64_t weight_bytes = plan.points() * plan.depth() * plan.columns() * 12;
  const int64_t fitting = kBytes / (plan.points() * 8 * (plan.depth() + plan.columns()));
  const int64_t tiles = weight_bytes > kWeightBytes ? std::max(fitting, kFewest) : fitting;
  return round_up(std::clamp<int64_t>(tiles, 1, plan.tiles()), kPanelRows);
}

MELETE_VECTOR_TARGETS void add(const float* a, const float* b, float sign, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + sign * b[i];
}

// bias [plane][out] or null; input and output channels-last
void convolve(const Plan& plan, const Planes& input, const at::Tensor& weight, bool backward,
              const float* bias, const std::array<float*, 2>& output) {
  const c10::IValue flops = product_flops(plan);
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(flops));
  const at::Tensor filters = transform_filter(plan, weight, backward);
  const float* filter = filters.data_ptr<float>();
  const int64_t points = plan.points(), depth = plan.depth(), columns = plan.columns();
  const int64_t depth_step = plan.depth_step(), columns_step = plan.columns_step();
  // As many blocks for one thread as for another.
  const int64_t fewest = round_up(divide_up(plan.tiles(), block_tiles(plan)), at::get_num_threads());
  const int64_t rows = round_up(divide_up(plan.tiles(), fewest), kPanelRows);
  const int64_t blocks = divide_up(plan.tiles(), rows);
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    // Rows of a last block that is not full give results that nobody reads.
    const at::Tensor inputs = at::empty({points, 2, rows, depth_step}, filters.options()),
                     outputs = at::empty({points, 2, rows, columns_step}, filters.options()),
                     sums = at::empty({rows, depth_step}, filters.options()),
                     shared = at::empty({rows, columns_step}, filters.options());
    float *x = inputs.data_ptr<float>(), *y = outputs.data_ptr<float>(), *sum = sums.data_ptr<float>(),
          *both = shared.data_ptr<float>();
    for (int64_t block = first; block < last; ++block) {
      const int64_t tile = block * rows, count = std::min(rows, plan.tiles() - tile);
      transform_input(plan, input, tile, count, rows, x);
      const int64_t padded = round_up(count, kPanelRows);
      for (int64_t point = 0; point < points; ++point) {
        const float *re = x + point * 2 * rows * depth_step, *im = re + rows * depth_step;
        float *out_re = y + point * 2 * rows * columns_step, *out_im = out_re + rows * columns_step;
        const float* weights = filter + point * 3 * depth * columns;
        const auto product = [&](const float* left, int64_t combination, const float* start, float* to) {
          panel_products().product(left, depth_step, weights + combination * depth * columns, start, to,
                                   columns_step, padded, depth, columns);
        };
        add(re, im, 1, sum, padded * depth_step);
        product(sum, 0, nullptr, both);
        product(re, 1, both, out_im);
        product(im, 2, both, out_re);
      }
      transform_output(plan, y, tile, count, rows, bias, output);
    }
  });
}

Planes planes_of(const ComplexPair& x) {
  return {x.re.data_ptr<float>(), x.im.data_ptr<float>()};
}

Plan forward_plan(const at::Tensor& x, const at::Tensor& weight, const ConvGeometry& geometry) {
  return cut({forward_axis(x.size(2), geometry.stride[0], geometry.padding[0]),
              forward_axis(x.size(3), geometry.stride[1], geometry.padding[1]), x.size(0), weight.size(1),
              weight.size(0)});
}

// The three products summed over tiles [begin, end), block by block.
// to: [point][product][columns / kPanel][depth][kPanel]
void sum_weight_products(const Plan& plan, const Planes& gradient, const Planes& input, int64_t begin,
                         int64_t end, const at::TensorOptions& options, float* to) {
  const int64_t points = plan.points(), depth = plan.depth(), columns = plan.columns(),
                size = depth * columns;
  const int64_t depth_step = plan.depth_step(), columns_step = plan.columns_step();
  const int64_t rows = block_tiles(plan);
  const at::Tensor inputs = at::empty({points, 2, rows, depth_step}, options),
                   outputs = at::empty({points, 2, rows, columns_step}, options);
  float *xs = inputs.data_ptr<float>(), *gs = outputs.data_ptr<float>();
  for (int64_t tile = begin; tile < end; tile += rows) {
    const int64_t count = std::min(rows, end - tile);
    at::parallel_for(0, count, kPanelRows, [&](int64_t first, int64_t last) {
      transform_input(plan, input, tile + first, last - first, rows, xs + first * depth_step);
      transform_gradient(plan, gradient, tile + first, last - first, rows, gs + first * columns_step);
    });
    at::parallel_for(0, points, 1, [&](int64_t first, int64_t last) {
      const at::Tensor lefts = at::empty({count, depth_step}, options),
                       rights = at::empty({count, columns_step}, options);
      float *left = lefts.data_ptr<float>(), *right = rights.data_ptr<float>();
      for (int64_t point = first; point < last; ++point) {
        const float *re = xs + point * 2 * rows * depth_step, *im = re + rows * depth_step;
        const float *g_re = gs + point * 2 * rows * columns_step, *g_im = g_re + rows * columns_step;
        const auto product = [&](const float* a, const float* b, int64_t combination) {
          panel_products().transposed_product(a, depth_step, b, columns_step,
                                              to + (point * 3 + combination) * size, tile > begin, count,
                                              depth, columns);
        };
        // Products of the gradient with the conjugate of the input; the first one belongs to both parts.
        add(re, im, -1, left, count * depth_step);
        product(left, g_re, 0);
        add(g_re, g_im, 1, right, count * columns_step);
        product(im, right, 1);
        add(g_im, g_re, -1, right, count * columns_step);
        product(re, right, 2);
      }
    });
  }
}

// [point, product, columns / kPanel * depth * kPanel]
at::Tensor weight_products(const Plan& plan, const Planes& gradient, const Planes& input,
                           const at::TensorOptions& options) {
  // Where the result is small its tiles are many: shares with a result each, which need not wait for each
  // other after every block. Their number is fixed, so that sums are the same on any number of threads.
  constexpr int64_t kShares = 8, kSmall = 512 << 10;
  const int64_t size = plan.depth() * plan.columns();
  const int64_t bytes = plan.points() * 3 * size * static_cast<int64_t>(sizeof(float));
  const int64_t shares = bytes <= kSmall ? std::min(kShares, divide_up(plan.tiles(), block_tiles(plan))) : 1;
  const at::Tensor sums = at::empty({shares, plan.points(), 3, size}, options);
  const auto sum_share = [&](int64_t share) {
    sum_weight_products(plan, gradient, input, share * plan.tiles() / shares,
                        (share + 1) * plan.tiles() / shares, options, sums[share].data_ptr<float>());
  };
  if (shares == 1) {  // shared out inside
    sum_share(0);
    return sums[0];
  }
  at::parallel_for(0, shares, 1, [&](int64_t first, int64_t last) {
    for (int64_t share = first; share < last; ++share) sum_share(share);
  });
  return sum_of_shares(sums);
}

}  // namespace

bool minimal_filter_fits(const at::Tensor& weight, const ConvGeometry& geometry) {
  const auto known = [&](size_t axis) {
    const int64_t stride = geometry.stride[axis];
    return (stride == 1 || stride == 2) && weight.size(static_cast<int64_t>(axis) + 2) == stride + 2;
  };
  return weight.is_cpu() && weight.scalar_type() == at::kFloat && known(0) && known(1) &&
         weight.size(0) % kPanel == 0 && weight.size(1) % kPanel == 0;
}

ComplexPair minimal_filter_conv2d(const ComplexPair& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const ConvGeometry& geometry) {
  const Plan plan = forward_plan(x.re, weight, geometry);
  const at::Tensor biases = bias.t().contiguous();
  ComplexPair y = empty_pair(x.re, plan.out, plan.height.out_size, plan.width.out_size);
  convolve(plan, planes_of(x), weight.contiguous(), false, biases.data_ptr<float>(),
           {y.re.data_ptr<float>(), y.im.data_ptr<float>()});
  return y;
}

ComplexPair minimal_filter_input_gradient(const ComplexPair& gradient, const at::Tensor& weight,
                                          std::array<int64_t, 2> size, const ConvGeometry& geometry) {
  const auto axis = [&](size_t i) {
    return backward_axis(size[i], gradient.re.size(static_cast<int64_t>(i) + 2), geometry.stride[i],
                         geometry.padding[i]);
  };
  const Plan plan = cut({axis(0), axis(1), gradient.re.size(0), weight.size(0), weight.size(1)});
  ComplexPair y = empty_pair(gradient.re, plan.out, size[0], size[1]);
  convolve(plan, planes_of(gradient), weight.contiguous(), true, nullptr,
           {y.re.data_ptr<float>(), y.im.data_ptr<float>()});
  return y;
}

at::Tensor minimal_filter_weight_gradient(const ComplexPair& gradient, const ComplexPair& x,
                                          const at::Tensor& weight, const ConvGeometry& geometry) {
  const Plan plan = forward_plan(x.re, weight, geometry);
  const c10::IValue flops = product_flops(plan);
  RECORD_FUNCTION("melete::product", c10::ArrayRef<const c10::IValue>(flops));
  const auto options = x.re.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor sums = weight_products(plan, planes_of(gradient), planes_of(x), options);

  const Axis &height = plan.height, &width = plan.width;
  const int64_t depth = plan.depth(), size = depth * plan.columns();
  const at::Tensor result = at::empty(weight.sizes(), options);
  const float* total = sums.data_ptr<float>();
  float* to = result.data_ptr<float>();
  over_pieces(plan, [&](int64_t first, int64_t last) {
    const TwoPasses passes(kernels().filter_gradient(width.points, width.taps),
                           kernels().filter_gradient(height.points, height.taps), height.points, width.taps);
    WeightPiece piece(plan, false);
    for (int64_t at_piece = first; at_piece < last; ++at_piece) {
      const auto [row, lane] = place_of_piece(plan, at_piece);
      for (int64_t product = 0; product < 3; ++product) {
        const auto places =
            point_places(total + product * size, height.points, width.points, 3 * size, false);
        for (int64_t phase = 0; phase < piece.phases(); ++phase)
          passes.run(places.data(), lane * depth + (phase * plan.in + row) * kPanel,
                     piece.places(product, phase, true).data(), 0, kChunk);
      }
      piece.visit(to, row, lane, [](float a, float b, float c, float* at) {
        at[0] = a + b;
        at[1] = a + c;
      });
    }
  });
  return result;
}

}  // namespace melete
