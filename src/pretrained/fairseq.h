// What fairseq's configurations have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace melete::fairseq {

struct ConvLayers {
  std::vector<int64_t> dims, kernels, strides;
};
// From fairseq's text "[(512, 10, 5)] + [(512, 3, 2)] * 4": lists of (dim, kernel, stride), added and
// repeated. Nothing else is understood.
ConvLayers conv_layers(const std::string& text);

}  // namespace melete::fairseq
