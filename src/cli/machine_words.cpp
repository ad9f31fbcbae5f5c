#include "cli/machine_words.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "core/device.h"
#include "core/engine.h"

namespace melete {

void MachineWords::describe(Arguments& arguments) {
  arguments.option("device", device, kDeviceHelp);
  arguments.option("threads", threads, "0: all cores").at_least(0);
}

c10::Device MachineWords::start(int64_t local_rank) const {
  set_threads(static_cast<int>(threads));
  const c10::Device found = device_named(device, local_rank);
  fmt::print(stderr, "computing on {}\n", found.str());
  return found;
}

}  // namespace melete
