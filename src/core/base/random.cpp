#include "core/base/random.h"

#include <cmath>
#include <numbers>
#include <numeric>

namespace melete {

namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t random_key(uint64_t seed, std::string_view purpose, std::initializer_list<uint64_t> numbers) {
  uint64_t key = mix(seed + 0x9e3779b97f4a7c15ULL);
  for (const char c : purpose) key = mix(key ^ static_cast<unsigned char>(c));
  for (const uint64_t number : numbers) key = mix(key ^ mix(number + 0x9e3779b97f4a7c15ULL));
  return key;
}

uint64_t Rng::next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  return mix(state_);
}

double Rng::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

double Rng::uniform(double low, double high) {
  return low + (high - low) * uniform();
}

int64_t Rng::integer(int64_t low, int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high - low);
  const uint64_t limit = UINT64_MAX - UINT64_MAX % range;
  uint64_t value = next();
  while (value >= limit) value = next();
  return low + static_cast<int64_t>(value % range);
}

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::vector<int64_t> Rng::permutation(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(integer(0, i + 1))]);
  return order;
}

}  // namespace melete
