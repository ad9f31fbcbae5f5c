// Random numbers that are a function of what they are for. Every draw in melete comes from a key made of
// (seed, purpose, numbers), so that resuming, prefetching and many ranks never change a result.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace melete {

// Mixes a seed, a purpose ("segment", "shuffle") and numbers (epoch, index, rank) into one 64-bit key.
uint64_t random_key(uint64_t seed, std::string_view purpose, std::initializer_list<uint64_t> numbers = {});

// A small generator (SplitMix64) that gives the same stream on every machine; fit for data order and
// synthesis.
class Rng {
 public:
  explicit Rng(uint64_t key) : state_(key) {}

  uint64_t next();
  double uniform();                            // [0, 1)
  double uniform(double low, double high);     // [low, high)
  int64_t integer(int64_t low, int64_t high);  // [low, high), without modulo bias
  double normal();                             // mean 0, deviation 1
  std::vector<int64_t> permutation(int64_t count);

 private:
  uint64_t state_;
};

}  // namespace melete
