// Broken files, made from good ones: always the same ones, so that a failure can be looked at again.
#pragma once

#include <algorithm>
#include <string>

#include "core/base/random.h"

namespace melete::testing {

// Variant 0, 1, 2, ... of `bytes`: flipped bits, overwritten runs, extreme numbers, cuts, doublings, holes.
inline std::string mutate(const std::string& bytes, uint64_t variant) {
  Rng rng(random_key(20240607, "mutate", {variant}));
  std::string out = bytes;
  const auto place = [&](size_t within) {
    return static_cast<size_t>(
        rng.integer(0, static_cast<int64_t>(std::max<size_t>(1, std::min(within, out.size())))));
  };
  const int64_t changes = rng.integer(1, 6);
  for (int64_t change = 0; change < changes && !out.empty(); ++change) {
    // Half of all changes hit the beginning, where headers are.
    const size_t within = rng.uniform() < 0.5 ? 128 : out.size();
    switch (rng.integer(0, 7)) {
      case 0: {
        const size_t at = place(within);
        out[at] = static_cast<char>(out[at] ^ (1 << rng.integer(0, 8)));
        break;
      }
      case 1:
        out[place(within)] = static_cast<char>(rng.integer(0, 256));
        break;
      case 2: {
        static constexpr unsigned char kExtremes[] = {0x00, 0xff, 0x7f, 0x80};
        const size_t at = place(within);
        const auto value = static_cast<char>(kExtremes[rng.integer(0, 4)]);
        const size_t end = std::min(out.size(), at + static_cast<size_t>(rng.integer(1, 9)));
        std::fill(out.begin() + static_cast<int64_t>(at), out.begin() + static_cast<int64_t>(end), value);
        break;
      }
      case 3:
        out.resize(place(out.size()));
        break;
      case 4:
        out.erase(place(within), static_cast<size_t>(rng.integer(1, 64)));
        break;
      case 5:
        out.insert(place(within), out.substr(place(within), static_cast<size_t>(rng.integer(1, 64))));
        break;
      default: {
        const size_t at = place(within);
        for (size_t i = at; i < std::min(out.size(), at + 16); ++i)
          out[i] = static_cast<char>(rng.integer(0, 256));
      }
    }
  }
  return out;
}

}  // namespace melete::testing
