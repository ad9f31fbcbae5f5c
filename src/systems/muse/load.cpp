#include "systems/muse/load.h"

#include "core/base/error.h"
#include "nn/frozen.h"
#include "roles/open.h"
#include "run/kept_models.h"
#include "run/trained_with.h"
#include "systems/muse/system.h"
#include "systems/muse/vqgan.h"

namespace melete::muse {

std::shared_ptr<const PictureTokenizer> open_picture_tokenizer(const std::string& run_or_checkpoint,
                                                               Weights weights, at::Device device) {
  return kept_model<std::shared_ptr<const PictureTokenizer>>(
      kVqganTask, run_or_checkpoint, weights_name(weights) + device.str(), [&] {
        const FoundCheckpoint found = open_checkpoint(run_or_checkpoint, "muse", kVqganTask);
        VqganConfig config;
        schema_of(config).apply(found.checkpoint.meta.at("config").at("model"));
        VqganVae vae(config.vae);
        load_weights(*vae, "vae.", found, weights, "muse");
        return put_on(device, std::make_unique<PictureTokenizer>(vae));
      });
}

namespace {

TrainedSize size_in(const nlohmann::ordered_json& settings) {
  const auto& data = settings.at("data");
  TrainedSize size{data.value("height", int64_t{0}), data.value("width", int64_t{0})};
  if (size.width == 0) size.width = size.height;
  return size;
}

// A run's own part of all that it takes.
struct MaskGitFile {
  std::string path;
  nlohmann::ordered_json settings;
  TextedMaskGitConfig config;
  TextedMaskGit model{nullptr};
};

MaskGitFile read_maskgit(const std::string& run_or_checkpoint, Weights weights, at::Device device) {
  const FoundCheckpoint found = open_checkpoint(run_or_checkpoint, "muse", kMaskGitTask);
  MaskGitFile file;
  file.path = found.path;
  file.settings = found.checkpoint.meta.at("config");
  schema_of(file.config).apply(file.settings.at("model"));
  take_pieces(file.config.text, found.checkpoint.tensors, "model.text_encoder.pieces", found.path);
  file.model = TextedMaskGit(file.config);
  file.model->eval();
  load_weights(*file.model, "", found, weights, "muse");
  file.model->to(device);
  return file;
}

}  // namespace

TrainedSize trained_size(const std::string& run_or_checkpoint) {
  return size_in(open_checkpoint(run_or_checkpoint, "muse").checkpoint.meta.at("config"));
}

at::Tensor LoadedMaskGit::read(const std::vector<std::string>& texts) {
  return model->text(texts, text ? text->encode(texts).embeddings.to(device_of(*model)) : at::Tensor());
}

LoadedMaskGit load_maskgit_run(const MaskGitPaths& paths, Weights weights, at::Device device) {
  const auto found = kept_model<MaskGitFile>(kMaskGitTask, paths.run, weights_name(weights) + device.str(),
                                             [&] { return read_maskgit(paths.run, weights, device); });
  const auto& settings = found.settings;
  const auto setting = [&](const char* name) { return settings.value(name, std::string()); };
  const auto place = [&](const std::string& given, const char* name, const char* flag) {
    const std::string path = given.empty() ? setting(name) : given;
    require(!path.empty(), "[muse] {} does not say where its {} is; give {}{}", found.path, name, paths.flags,
            flag);
    return path;
  };
  const auto same = [&](const char* what, const char* name, const std::string& loaded, const char* flag) {
    require_trained_with(found.path, what, setting(name), loaded, paths.flags + flag);
  };

  LoadedMaskGit loaded;
  loaded.model = found.model;
  loaded.pictures = open_picture_tokenizer(place(paths.vqgan, "vqgan_from", "vqgan"), Weights::best, device);
  same("VQ-GAN", "vqgan_identity", loaded.pictures->identity(), "vqgan");
  const TrainedSize size = size_in(settings);
  loaded.height = size.height;
  loaded.width = size.width;
  loaded.smaller_height = settings.value("smaller_height", int64_t{0});
  if (loaded.smaller_height > 0) {
    loaded.smaller_width = loaded.smaller_height * loaded.width / loaded.height;
    const std::string wanted = setting("smaller_vqgan_identity");
    const bool own = !paths.smaller_vqgan.empty() || !setting("smaller_vqgan_from").empty() ||
                     (!wanted.empty() && wanted != loaded.pictures->identity());
    loaded.smaller =
        own ? open_picture_tokenizer(place(paths.smaller_vqgan, "smaller_vqgan_from", "smaller_vqgan"),
                                     Weights::best, device)
            : loaded.pictures;
    same("VQ-GAN of smaller pictures", "smaller_vqgan_identity", loaded.smaller->identity(), "smaller_vqgan");
  }
  if (!found.config.text.enabled()) {
    loaded.text = open_text_encoder(place(paths.text_encoder, "text_from", "text_encoder"), device);
    same("text encoder", "text_identity", loaded.text->identity(), "text_encoder");
  }
  return loaded;
}

}  // namespace melete::muse
