// Roles that systems have, and frozen models beside them.
#include <fmt/ranges.h>

#include <filesystem>

#include "core/base/error.h"
#include "pretrained/import.h"
#include "roles/open.h"
#include "run/kept_models.h"
#include "systems/system.h"

namespace melete {

namespace {

namespace fs = std::filesystem;

// The first provider in the list whose task is the checkpoint's.
template <class Provider>
const Provider& provider_for(const FoundCheckpoint& found, const char* what,
                             std::vector<Provider> System::*providers) {
  const std::string task = found.checkpoint.meta.value("task", "");
  std::vector<std::string> known;
  for (const System& system : systems())
    for (const Provider& provider : system.*providers) {
      if (provider.task == task) return provider;
      known.push_back(provider.task);
    }
  fail("[{}] {} is a checkpoint of `{}`; expected one of: {}", what, found.path, task,
       fmt::join(known, ", "));
}

template <class Role>
std::shared_ptr<const Role> open_role(const std::string& path, const char* what, at::Device device,
                                      std::vector<Provider<Role>> System::*providers) {
  return kept_model<std::shared_ptr<const Role>>(what, path, device.str(), [&] {
    const FoundCheckpoint found = open_checkpoint(path, what);
    return put_on(device, provider_for(found, what, providers).open(found));
  });
}

// Weights as others publish them: a folder of Hugging Face, a torch file, safetensors without our
// description.
bool is_foreign(const fs::path& path) {
  if (fs::is_directory(path))
    return fs::exists(path / "config.json") &&
           (fs::exists(path / "model.safetensors") || fs::exists(path / "pytorch_model.bin"));
  if (path.extension() != ".safetensors") return fs::is_regular_file(path);
  return !is_checkpoint(path.string());
}

// "codec step 12000" of runs/codec and of runs/codec/checkpoints/... alike.
std::string name_for_people(const std::string& given) {
  fs::path path(given);
  if (!path.has_filename()) path = path.parent_path();
  return (fs::is_directory(given) ? path.filename() : path.stem()).string().substr(0, 40);
}

OpenedCodec encodec(Encodec model, const std::string& path, at::Device device) {
  OpenedCodec opened;
  opened.codec = put_on(device, std::make_unique<EncodecCodec>(std::move(model)));
  opened.path = path;
  opened.name = name_for_people(path);
  return opened;
}

OpenedCodec read_codec(const std::string& path, Weights weights, at::Device device) {
  const bool foreign = is_foreign(path);
  if (foreign || (!fs::is_directory(path) && read_checkpoint_meta(path).value("task", "") == "encodec")) {
    require(weights != Weights::untrained, "[codec] {} was not trained here: there is no untrained one",
            path);
    return encodec(foreign ? import_encodec(path) : encodec_of(load_frozen(path), path), path, device);
  }
  const FoundCheckpoint found = open_checkpoint(path, "codec");
  OpenedCodec opened;
  opened.codec = put_on(device, provider_for(found, "codec", &System::codecs).open(found, weights));
  opened.path = found.path;
  opened.step = weights == Weights::untrained ? 0 : found.checkpoint.step();
  opened.name = fmt::format("{} step {}", name_for_people(path), opened.step);
  opened.trained_here = true;
  opened.averaged = weights == Weights::best && !found.checkpoint.part("ema.average.").empty();
  return opened;
}

}  // namespace

OpenedCodec open_codec_with_its_name(const std::string& path, Weights weights, at::Device device) {
  require(fs::exists(path), "[codec] {} does not exist", path);
  return kept_model<OpenedCodec>("codec", path, weights_name(weights) + device.str(),
                                 [&] { return read_codec(path, weights, device); });
}

std::shared_ptr<const Codec> open_codec(const std::string& path, Weights weights, at::Device device) {
  return open_codec_with_its_name(path, weights, device).codec;
}

std::shared_ptr<const AudioFeatures> open_audio_features(const std::string& path, at::Device device) {
  return open_role(path, "audio features", device, &System::audio_features);
}

std::shared_ptr<const JointEmbedding> open_joint_embedding(const std::string& path, at::Device device) {
  return open_role(path, "joint embedding", device, &System::joint_embeddings);
}

}  // namespace melete
