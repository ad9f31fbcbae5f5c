// Roles that systems have, and frozen models beside them.
#include <filesystem>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "pretrained/import.h"
#include "roles/open.h"
#include "run/load_weights.h"
#include "systems/system.h"

namespace melete {

namespace {

// The first provider in the list whose task is the checkpoint's.
template <class Role>
std::unique_ptr<Role> open_role(const std::string& path, const char* what,
                                std::vector<Provider<Role>> System::*providers) {
  const FoundCheckpoint found = open_checkpoint(path, what);
  const std::string task = found.checkpoint.meta.value("task", "");
  std::vector<std::string> known;
  for (const System& system : systems())
    for (const Provider<Role>& provider : system.*providers) {
      if (provider.task == task) return provider.open(found);
      known.push_back(provider.task);
    }
  fail("[{}] {} is a checkpoint of `{}`; expected one of: {}", what, found.path, task,
       fmt::join(known, ", "));
}

}  // namespace

std::unique_ptr<Codec> open_codec(const std::string& path) {
  if (!std::filesystem::is_directory(path) && read_checkpoint_meta(path).value("task", "") == "encodec")
    return std::make_unique<EncodecCodec>(encodec_of(load_frozen(path), path));
  return open_role(path, "codec", &System::codecs);
}

std::unique_ptr<AudioFeatures> open_audio_features(const std::string& path) {
  return open_role(path, "audio features", &System::audio_features);
}

std::unique_ptr<JointEmbedding> open_joint_embedding(const std::string& path) {
  return open_role(path, "joint embedding", &System::joint_embeddings);
}

}  // namespace melete
