// --threads and --device: where a command that runs models computes. The same two words in every one of them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace melete {

class Arguments;

struct MachineWords {
  int64_t threads = 0;
  std::string device = "auto";

  void describe(Arguments& arguments);
  // Sets the threads, finds the device and says once where it computes. local_rank: of several processes on
  // this machine, each of which takes a GPU of its own.
  c10::Device start(int64_t local_rank = 0) const;
};

}  // namespace melete
