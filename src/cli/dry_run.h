// What `melete train --dry_run` prints.
#pragma once

#include <optional>
#include <string>

#include "measure/cost.h"
#include "run/expectation.h"

namespace melete {

std::string dry_run_text(const Recipe& recipe, const TrainingCost& cost, const Feed& feed,
                         const std::optional<Expectation>& expectation);

}  // namespace melete
