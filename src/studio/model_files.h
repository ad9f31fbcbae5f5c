// Models that a form can offer besides the newest state of a run: files of their own, such as a k-means
// tokenizer or an imported codec, and the single checkpoints of runs.
#pragma once

#include <nlohmann/json.hpp>

namespace melete {

class RunIndex;

// [{"path", "task", "step", "bytes", "run"}]; paths below the index's root; run: whose checkpoint it is,
// empty for a file of its own.
nlohmann::ordered_json model_files(const RunIndex& index);

}  // namespace melete
