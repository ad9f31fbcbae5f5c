// Models that a form can offer besides the newest state of a run: files of their own, such as a k-means
// tokenizer or an imported codec, and the single checkpoints of runs.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace melete {

class RunIndex;

// What a checkpoint of ours says of itself: {"task", "step", "version" of the program that wrote it, ...};
// null for any other file.
nlohmann::ordered_json checkpoint_meta(const std::filesystem::path& path);

// [{"path", "task", "step", "bytes", "run"}]; paths below the index's root; run: whose checkpoint it is,
// empty for a file of its own.
nlohmann::ordered_json model_files(const RunIndex& index);

}  // namespace melete
