#include "train/ema_as_model.h"

#include <filesystem>

#include "core/base/error.h"

namespace melete {

Checkpoint ema_as_model(const FoundCheckpoint& found) {
  Checkpoint made = found.checkpoint;
  const TensorMap averages = made.part("ema.average.");
  require(!averages.empty(),
          "[export] {} has no averaged weights; was it trained with train.ema.enabled = false?", found.path);
  for (const auto& [name, average] : averages) {
    const auto online = made.tensors.find("model." + name);
    require(online != made.tensors.end() && online->second.sizes() == average.sizes(),
            "[export] {} has an average of {}, which its model has not in that shape", found.path, name);
    online->second = average.to(online->second.scalar_type());
  }
  return made;
}

std::string write_ema_as_model(const FoundCheckpoint& found, const std::string& out) {
  const std::string extension = std::filesystem::path(out).extension().string();
  require(extension != ".pt" && extension != ".pth",
          "[export] expected a run folder or x.safetensors to go on training from, got {}", out);
  const Checkpoint made = ema_as_model(found);
  if (extension == ".safetensors") {
    save_checkpoint(out, made);
    return out;
  }
  RunFolder folder(out, StartMode::new_run);
  folder.write_config(made.meta.at("config"));
  return folder.save(made, KeepRule{});
}

}  // namespace melete
