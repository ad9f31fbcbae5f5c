// Starts the processes of a group on this machine, as torchrun would: one environment each, one store for
// all. Signals go on to every one of them; when one dies, all end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace melete {

struct LaunchOptions {
  int64_t processes = 2;
  std::vector<std::string> words;  // after the program's name
  double grace_seconds = 10;       // for the others to end by themselves after one has died
  // Lines of the ranks' error output, and of every other output but rank 0's, which goes straight through.
  std::function<void(int64_t rank, const std::string& line)> on_line;
};

struct LaunchResult {
  int code = 0;        // of the rank that failed first; 0 when none did
  std::string reason;  // "rank 1 was killed by signal 9"
};

LaunchResult launch(const LaunchOptions& options);

}  // namespace melete
