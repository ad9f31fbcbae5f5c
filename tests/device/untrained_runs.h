// Small models of every kind in files, as if they had just begun to be trained: what generators and tools are
// tried with.
#pragma once

#include <string>

#include "base/temporary_folder.h"

namespace melete::testing {

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
