// What is plainly wrong with something that a model has made, whatever it was meant to be.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <string>

namespace melete {

// "silent", "constant", "clipped (12 % of it)", "not finite"; empty: nothing of that kind.
std::string fault_of_sound(std::span<const float> samples);

// pictures [items, channels, height, width] in [0, 1] -> "of one colour, all of them the same", "each of one
// colour", "not finite"; empty: nothing of that kind.
std::string fault_of_pictures(const at::Tensor& pictures);

}  // namespace melete
