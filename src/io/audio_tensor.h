// Sound between files and tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace melete {

// Channels averaged, at the wanted rate: [samples] float32. seconds: only so much of its beginning; 0: all.
at::Tensor read_mono(const std::string& path, int64_t rate_hz, double seconds = 0);

// wave [samples] on any device -> the same on the host
std::vector<float> wave_samples(const at::Tensor& wave);

// wave [samples] on any device; the folder is made where it is missing.
void write_wave(const std::string& path, const at::Tensor& wave, int64_t rate_hz);

}  // namespace melete
