// How minimal filtering cuts a convolution into tiles, and how tiles are read, transformed and written.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/minimal_filter_kernels.h"

namespace melete::minimal_filter {

constexpr int kMostPoints = 6;   // of an axis
constexpr int64_t kChunk = 128;  // channels that a transform takes at a time, to stay in the first cache

// One axis of a convolution without stride, cut into tiles. What is read and written may be every `step`-th
// position: `step` phases, one after the other.
struct Axis {
  int taps;
  int64_t positions;                      // that tiles cover
  int64_t in_size, in_step, in_start;     // position u, phase p reads in_start + in_step * (u + tap) + p
  int64_t out_size, out_step, out_start;  // and writes out_start + out_step * u + p

  int outputs, points;  // of a tile
  int64_t tiles;

  void cut(int tile) {
    outputs = tile;
    points = tile + taps - 1;
    tiles = (positions + tile - 1) / tile;
  }
};

inline int taps_of(int64_t stride) {
  return stride == 1 ? 3 : 2;
}

inline Axis forward_axis(int64_t in_size, int64_t stride, int64_t padding) {
  Axis axis{};
  axis.taps = taps_of(stride);
  axis.in_size = in_size;
  axis.in_step = stride;
  axis.in_start = -padding;
  axis.out_size = (in_size + 2 * padding - stride - 2) / stride + 1;
  axis.out_step = 1;
  axis.out_start = 0;
  axis.positions = axis.out_size;
  return axis;
}

// The gradient of position stride * v + phase - padding of the input adds tap stride * j + phase times the
// gradient of output v - j.
inline Axis backward_axis(int64_t in_size, int64_t gradient_size, int64_t stride, int64_t padding) {
  Axis axis{};
  axis.taps = taps_of(stride);
  const int64_t first = padding / stride, last = (in_size - 1 + padding) / stride;
  axis.in_size = gradient_size;
  axis.in_step = 1;
  axis.in_start = first - axis.taps + 1;
  axis.out_size = in_size;
  axis.out_step = stride;
  axis.out_start = stride * first - padding;
  axis.positions = last - first + 1;
  return axis;
}

struct Plan {
  Axis height, width;
  int64_t batch, in, out;  // channels, phases not counted

  int64_t tiles() const { return batch * height.tiles * width.tiles; }
  int64_t points() const { return height.points * width.points; }
  int64_t depth() const { return in * height.in_step * width.in_step; }
  int64_t columns() const { return out * height.out_step * width.out_step; }
  // From tile to tile of a transform: no large power of two, which would use few sets of the caches.
  int64_t depth_step() const { return depth() < 128 ? depth() : depth() + 16; }
  int64_t columns_step() const { return columns() < 128 ? columns() : columns() + 16; }
};

// Cuts both axes so that the work is least: a product for every tile and, reckoned in tiles, the weights'
// transforms.
inline Plan cut(Plan plan) {
  constexpr int64_t kWeights = 50;
  int64_t least = 0;
  int best[2] = {};
  for (int high = 2; high + plan.height.taps - 1 <= kMostPoints; ++high)
    for (int wide = 2; wide + plan.width.taps - 1 <= kMostPoints; ++wide) {
      plan.height.cut(high);
      plan.width.cut(wide);
      const int64_t work = plan.points() * (plan.tiles() + kWeights);
      if (least != 0 && work >= least) continue;
      least = work;
      best[0] = high;
      best[1] = wide;
    }
  plan.height.cut(best[0]);
  plan.width.cut(best[1]);
  return plan;
}

// The pixels of tiles: those that a tile reads, or (`read` false) those that it writes.
template <class Float>
class TilePixels {
 public:
  // image [batch, height, width, channels]; `outside` stands for pixels that do not exist. The pointers of a
  // tile are in rows, or by columns.
  TilePixels(const Plan& plan, Float* image, Float* outside, int64_t channels, bool read, bool by_column)
      : image_(image), outside_(outside), channels_(channels), by_column_(by_column) {
    const auto side = [read](const Axis& axis) {
      return read
                 ? Side{axis.in_size, axis.in_step, axis.in_start, axis.points, axis.outputs, axis.tiles}
                 : Side{axis.out_size, axis.out_step, axis.out_start, axis.outputs, axis.outputs, axis.tiles};
    };
    height_ = side(plan.height);
    width_ = side(plan.width);
    for (int64_t i = 0; i < height_.count; ++i)
      for (int64_t j = 0; j < width_.count; ++j)
        at(inside_, i, j) = image + (i * height_.step * width_.size + j * width_.step) * channels;
  }

  // Pointers and an offset to add to them, of tile `index` in the phase given.
  std::pair<Float* const*, int64_t> operator()(int64_t index, int64_t phase_height, int64_t phase_width) {
    const int64_t item = index / (height_.tiles * width_.tiles);
    const int64_t top = height_.first(index / width_.tiles % height_.tiles, phase_height),
                  left = width_.first(index % width_.tiles, phase_width);
    const int64_t corner = (item * height_.size + top) * width_.size + left;
    if (height_.holds(top) && width_.holds(left)) return {inside_, corner * channels_};
    for (int64_t i = 0; i < height_.count; ++i)
      for (int64_t j = 0; j < width_.count; ++j) {
        const int64_t down = i * height_.step, right = j * width_.step;
        const bool exists =
            top + down >= 0 && top + down < height_.size && left + right >= 0 && left + right < width_.size;
        at(partly_, i, j) = exists ? image_ + (corner + down * width_.size + right) * channels_ : outside_;
      }
    return {partly_, 0};
  }

 private:
  struct Side {
    int64_t size, step, start, count, outputs, tiles;
    int64_t first(int64_t tile, int64_t phase) const { return start + phase + step * tile * outputs; }
    bool holds(int64_t from) const { return from >= 0 && from + (count - 1) * step < size; }
  };
  Float*& at(Float** pointers, int64_t i, int64_t j) {
    return pointers[by_column_ ? j * height_.count + i : i * width_.count + j];
  }

  Float *image_, *outside_;
  int64_t channels_;
  bool by_column_;
  Side height_, width_;
  Float *inside_[kMostPoints * kMostPoints], *partly_[kMostPoints * kMostPoints];
};

// A transform along width, then along height, through a small buffer.
// Sizes are [height, width] of what each pass reads and writes, per chunk of channels.
class TwoPasses {
 public:
  TwoPasses(Pass first, Pass second, int64_t height_in, int64_t width_out)
      : first_(first), second_(second), height_in_(height_in), width_out_(width_out) {
    for (int64_t i = 0; i < height_in; ++i)
      for (int64_t j = 0; j < width_out; ++j) {
        float* at = buffer_ + (i * width_out + j) * kChunk;
        written_[i * width_out + j] = at;
        read_[j * height_in + i] = at;
      }
  }

  // in: rows of pointers; out: columns of pointers. Both move by their offsets and by channels.
  void run(const float* const* in, int64_t in_offset, float* const* out, int64_t out_offset, int64_t channels,
           const float* bias = nullptr) const {
    for (int64_t at = 0; at < channels; at += kChunk) {
      const int64_t count = std::min(kChunk, channels - at);
      first_(in, in_offset + at, written_, 0, height_in_, count, nullptr);
      second_(read_, 0, out, out_offset + at, width_out_, count, bias ? bias + at : nullptr);
    }
  }

 private:
  Pass first_, second_;
  int64_t height_in_, width_out_;
  alignas(64) float buffer_[kMostPoints * kMostPoints * kChunk];
  float* written_[kMostPoints * kMostPoints];
  const float* read_[kMostPoints * kMostPoints];
};

template <class Float>
using Places = std::array<Float*, kMostPoints * kMostPoints>;

// Pointers to where each point of a transform is kept: [height][width], or by columns of the tile.
template <class Float>
Places<Float> point_places(Float* base, int64_t height, int64_t width, int64_t step, bool by_column) {
  Places<Float> places{};
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j)
      places[static_cast<size_t>(by_column ? j * height + i : i * width + j)] = base + (i * width + j) * step;
  return places;
}

}  // namespace melete::minimal_filter
