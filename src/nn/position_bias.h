// A learned bias of attention scores by distance: a small network from distance to one value a head,
// evaluated once for every distinct distance.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

namespace melete {

// inputs -> dim -> ... -> dim -> heads, with SiLU between: `hidden` layers of width dim.
struct BiasNetworkImpl : torch::nn::Module {
  BiasNetworkImpl(int64_t inputs, int64_t dim, int64_t heads, int64_t hidden);
  at::Tensor forward(at::Tensor x);  // [rows, inputs] -> [rows, heads] float32

  torch::nn::ModuleList layers;
};
TORCH_MODULE(BiasNetwork);

// The network at distances 0 .. count - 1 -> [count, heads].
at::Tensor bias_by_distance(BiasNetwork& network, int64_t count);

// Rows [from, to) of a causal bias over keys [0, to): by_distance[query - key], and -inf for keys that come
// after the query. by_distance [at least to, heads] or undefined (no bias, only causality)
// -> [to - from, heads or 1, to]
at::Tensor causal_bias(const at::Tensor& by_distance, int64_t from, int64_t to);

}  // namespace melete
