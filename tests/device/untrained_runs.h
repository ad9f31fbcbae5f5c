// Small models of every kind in files, as if they had just begun to be trained: what generators and tools are
// tried with.
#pragma once

#include <string>

#include "base/temporary_folder.h"

namespace melete::testing {

// Gain of normalised queries and keys in these models. At 1, which training begins with, attention sees
// little but its best key, and rounding decides which; see rounding_test.cpp.
inline constexpr double kGentle = 0.25;

// Made once for all tests that ask, and gone at the end of the program. Everything is made on the CPU.
class UntrainedRuns {
 public:
  static const UntrainedRuns& shared();

  std::string operator/(const std::string& name) const { return folder_ / name; }
  bool speaks() const { return speaks_; }  // whether espeak-ng is there, which phonemes need

 private:
  UntrainedRuns();

  TemporaryFolder folder_;
  bool speaks_;
};

}  // namespace melete::testing
