#include "nn/draws.h"

#include <ATen/CPUGeneratorImpl.h>

namespace melete {

SeededDraws::SeededDraws(uint64_t key) : generator_(at::detail::createCPUGenerator(key)) {}

int64_t SeededDraws::integer(std::string_view, int64_t low, int64_t high) {
  return at::randint(low, high, {1}, generator_, at::kLong).item<int64_t>();
}

at::Tensor SeededDraws::rows(std::string_view, int64_t population, int64_t count) {
  if (population >= count) return at::randperm(population, generator_, at::kLong).narrow(0, 0, count);
  return at::randint(0, population, {count}, generator_, at::kLong);
}

at::Tensor SeededDraws::uniform(std::string_view, at::IntArrayRef shape) {
  return at::rand(shape, generator_);
}

at::Tensor SeededDraws::normal(std::string_view, at::IntArrayRef shape) {
  return at::randn(shape, generator_);
}

}  // namespace melete
