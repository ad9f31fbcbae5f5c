// Where layers get their random draws. Training derives them from (seed, step, rank); tests replay recorded
// ones.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

namespace melete {

class Draws {
 public:
  virtual ~Draws() = default;

  // An integer in [low, high).
  virtual int64_t integer(std::string_view what, int64_t low, int64_t high) = 0;
  // `count` row numbers out of `population`: distinct when there are enough, else with repeats. int64 [count]
  virtual at::Tensor rows(std::string_view what, int64_t population, int64_t count) = 0;
  // Uniform in [0, 1) / standard normal, float32 of that shape.
  virtual at::Tensor uniform(std::string_view what, at::IntArrayRef shape) = 0;
  virtual at::Tensor normal(std::string_view what, at::IntArrayRef shape) = 0;
};

// Draws that are a function of keys (see core/base/random.h) and of the order of the calls. Integers and row
// numbers decide for the whole batch and come from the key that all ranks share; tensors are each rank's own.
class SeededDraws : public Draws {
 public:
  explicit SeededDraws(uint64_t key) : SeededDraws(key, key) {}
  SeededDraws(uint64_t own_key, uint64_t shared_key);
  int64_t integer(std::string_view what, int64_t low, int64_t high) override;
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  at::Generator own_, shared_;
};

}  // namespace melete
