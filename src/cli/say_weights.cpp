#include "cli/say_weights.h"

#include <fmt/format.h>

namespace melete {

std::string weights_line(const std::string& path, Weights asked, bool averaged) {
  return fmt::format("{} weights of {}{}", averaged ? "averaged" : "online", path,
                     asked == Weights::best && !averaged ? ", which has no average" : "");
}

SayWeights::SayWeights()
    : listener_([this](const TakenWeights& taken) {
        const std::string line = weights_line(taken.path, taken.asked, taken.averaged);
        if (said_.insert(line).second) fmt::print(stderr, "{}\n", line);
      }) {}

}  // namespace melete
