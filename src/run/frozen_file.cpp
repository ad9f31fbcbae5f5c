#include "run/frozen_file.h"

#include "core/base/error.h"
#include "core/base/version.h"
#include "run/checkpoint.h"

namespace melete {

void save_frozen(const std::string& path, const FrozenModel& model, const nlohmann::ordered_json& about) {
  require(path.ends_with(".safetensors"), "[write {}] expected a name that ends with .safetensors", path);
  Checkpoint checkpoint;
  checkpoint.meta = {{"step", 0},
                     {"task", model.task},
                     {"frozen", true},
                     {"config", model.config},
                     {"melete_version", version()}};
  if (about.is_object()) checkpoint.meta["about"] = about;
  checkpoint.add("model.", model.tensors);
  save_checkpoint(path, checkpoint);
}

FrozenModel load_frozen(const std::string& path) {
  const Checkpoint checkpoint = load_checkpoint(path);
  const auto& meta = checkpoint.meta;
  require(meta.value("frozen", false) && meta.contains("config"),
          "[{}] is a checkpoint of `{}`, not a frozen model", path, meta.value("task", "?"));
  return {meta.value("task", ""), meta["config"], checkpoint.part("model.")};
}

}  // namespace melete
