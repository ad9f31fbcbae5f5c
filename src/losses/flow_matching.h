// Conditional flow matching along straight lines (Lipman et al. 2023): the network learns the direction from
// noise to data at every point between them.
#pragma once

#include <ATen/ATen.h>

namespace melete {

struct FlowLine {
  at::Tensor point;      // (1 - (1 - sigma) t) noise + t data
  at::Tensor direction;  // data - (1 - sigma) noise: the same at all times
};
// data and noise [batch, ...], times [batch]
FlowLine flow_line(const at::Tensor& data, const at::Tensor& noise, const at::Tensor& times, double sigma);

// The mean over the positions of a row that count; a row without any gives 0.
// values [batch, n], counted bool [batch, n] or undefined (all do) -> [batch]
at::Tensor row_means(const at::Tensor& values, const at::Tensor& counted);

}  // namespace melete
