// Patches of a spectrogram as positions: where they are, and how far from each other.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace melete::musiclm {

// bands x columns patches, counted band by band: patch i is in band i / columns, column i % columns.
struct PatchGrid {
  int64_t bands = 0;    // of frequency
  int64_t columns = 0;  // of time

  int64_t patches() const { return bands * columns; }
  // How many different ways one patch can lie from another: fewer than four times the patches.
  int64_t distinct_offsets() const { return (2 * bands - 1) * (2 * columns - 1); }
};

// Sines and cosines of column and band, a quarter of dim each. [patches, dim]
at::Tensor sine_positions(const PatchGrid& grid, int64_t dim, const at::TensorOptions& options);

// Every distinct offset: query band minus key band, query column minus key column. [distinct_offsets, 2]
at::Tensor offset_table(const PatchGrid& grid, const at::TensorOptions& options);

// by_offset [distinct_offsets, heads], patches [n] int64 -> [n, heads, n]: for every pair of these patches
// the row of its offset.
at::Tensor gather_offsets(const at::Tensor& by_offset, const at::Tensor& patches, const PatchGrid& grid);

}  // namespace melete::musiclm
