// From what finished runs have written to what to expect of the next one.
#pragma once

#include <string>
#include <vector>

#include "run/expectation.h"

namespace melete {

// Reads metrics.jsonl of each folder. With several runs of one recipe a band is as wide as they differ, and
// half as much again; with one, as wide as neighbouring steps differ. Never narrower than a few per cent.
// Data and machine are named by whoever knows them; empty: what the first run says of its data.
Expectation measure_runs(const std::vector<std::string>& run_folders, const std::string& data,
                         const std::string& machine);

}  // namespace melete
