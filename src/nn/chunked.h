// Large batches in little memory: rows are run in chunks of which only the results are kept, and run again,
// chunk by chunk, when their gradient comes (GradCache, Gao et al. 2021). For losses that need all rows'
// results at once, but only little of each.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace melete {

class Draws;

struct RowRange {
  int64_t begin = 0, end = 0;
  Draws* draws = nullptr;  // the second time they give what they gave the first time; null: none
};

// f gives one or more tensors [rows of the chunk, ...]; the result has those of all rows. f must keep what it
// needs until the backward pass, and must compute the same twice. `parameters` are what gradients flow to;
// those that f does not use are allowed. Without gradients f runs once.
std::vector<at::Tensor> chunked(const std::vector<at::Tensor>& parameters, int64_t rows, int64_t chunk,
                                Draws* draws, std::function<std::vector<at::Tensor>(const RowRange&)> f);

}  // namespace melete
