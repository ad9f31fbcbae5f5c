#include "nn/draws.h"

#include <ATen/CPUGeneratorImpl.h>

namespace melete {

SeededDraws::SeededDraws(uint64_t own_key, uint64_t shared_key)
    : own_(at::detail::createCPUGenerator(own_key)),
      shared_(shared_key == own_key ? own_ : at::detail::createCPUGenerator(shared_key)) {}

int64_t SeededDraws::integer(std::string_view, int64_t low, int64_t high) {
  return at::randint(low, high, {1}, shared_, at::kLong).item<int64_t>();
}

at::Tensor SeededDraws::rows(std::string_view, int64_t population, int64_t count) {
  if (population >= count) return at::randperm(population, shared_, at::kLong).narrow(0, 0, count);
  return at::randint(0, population, {count}, shared_, at::kLong);
}

at::Tensor SeededDraws::uniform(std::string_view, at::IntArrayRef shape) {
  return at::rand(shape, own_);
}

at::Tensor SeededDraws::normal(std::string_view, at::IntArrayRef shape) {
  return at::randn(shape, own_);
}

}  // namespace melete
