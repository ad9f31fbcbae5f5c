// In which form generation keeps the weights that every token reads.
#pragma once

#include <string>
#include <vector>

namespace melete {

enum class WeightStorage { float32, bf16, int8 };

// As it is written on a command line: fp32, bf16 or int8.
std::vector<std::string> weight_precisions();
WeightStorage weight_storage(const std::string& precision);

// What a token reads for one weight, scales included.
double bytes_per_weight(WeightStorage storage);

}  // namespace melete
