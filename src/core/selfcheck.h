// Checks of the engine's own arithmetic: LibTorch builds in the field have wrong gradients and silent
// fallbacks, and each one that melete knows of is tried here, so that `melete doctor` can say what holds on
// this machine.
#pragma once

#include <string>
#include <vector>

namespace melete {

struct SelfCheck {
  enum class State { ok, worked_around, broken };
  std::string name;
  State state = State::ok;
  std::string detail;  // figures when ok; else what is wrong and what melete does instead

  // "ok (...)", "wrong here: worked around by ...", "broken: ..."
  std::string verdict() const;
};

std::vector<SelfCheck> run_self_checks();

}  // namespace melete
