// For its lifetime, says on standard error which weights every model that is loaded takes: the average or the
// online ones, once a file. For commands that have --weights.
#pragma once

#include <set>
#include <string>

#include "run/load_weights.h"

namespace melete {

// "averaged weights of RUN/checkpoints/step_00001000.safetensors"
std::string weights_line(const std::string& path, Weights asked, bool averaged);

class SayWeights {
 public:
  SayWeights();

 private:
  std::set<std::string> said_;
  WeightsListener listener_;
};

}  // namespace melete
