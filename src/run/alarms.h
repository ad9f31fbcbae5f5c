// What is wrong with a run, in words, each thing once.
#pragma once

#include <set>
#include <string>

#include "run/reporter.h"

namespace melete {

class Alarms {
 public:
  explicit Alarms(Reporter& reporter) : reporter_(reporter) {}

  // kind: what it is that is said only once; false when it was said before.
  bool say(const std::string& kind, const std::string& text) {
    if (!said_.insert(kind).second) return false;
    reporter_.warning(text);
    return true;
  }
  bool said(const std::string& kind) const { return said_.count(kind) > 0; }
  void forget(const std::string& kind) { said_.erase(kind); }  // it is over, and may begin again

 private:
  Reporter& reporter_;
  std::set<std::string> said_;
};

}  // namespace melete
