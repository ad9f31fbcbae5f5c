// Checkpoints as muse-maskgit-pytorch loads them: bare state_dicts, as its own trainer leaves them.
#include "config/schema.h"
#include "core/base/error.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/load.h"
#include "systems/muse/system.h"
#include "systems/muse/vqgan.h"

namespace melete {

namespace {

namespace foreign = muse_maskgit_pytorch;

class MuseExporter : public Exporter {
 public:
  using Exporter::Exporter;

 protected:
  Json training_tree() override {
    fail(
        "[export] --for training writes a package of muse-maskgit-pytorch again, and {} was not imported "
        "from "
        "one: whose its optimisers' states are is in none of its files; try --for finetune",
        path_);
  }

  // The weights that are wanted, in a module that was made for them.
  void fill(torch::nn::Module& module, const std::string& prefix) {
    for (auto& item : module.named_parameters()) item.value().copy_(wanted(prefix + item.key()));
    for (auto& item : module.named_buffers()) item.value().copy_(wanted(prefix + item.key()));
  }
  Json tree_of(const TensorMap& state) {
    Json entries = Json::array();
    for (const auto& [name, tensor] : state) entries.push_back({name, reference(name, tensor)});
    return {{"$ordered", entries}};
  }
};

class VqganExporter final : public MuseExporter {
 public:
  VqganExporter(const Checkpoint& checkpoint, const std::string& path) : MuseExporter(checkpoint, path) {
    muse::VqganConfig config;
    schema_of(config).apply(checkpoint.meta.at("config").at("model"));
    gan_ = muse::Vqgan(config);
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*gan_); }
  bool used_in_inference(const std::string& ours) const override { return ours.starts_with("vae."); }

  Json weights_tree(ExportFor purpose) override {
    fill(*gan_->vae, "vae.");
    if (purpose != ExportFor::finetune || !gan_->has_discriminator())
      return tree_of(foreign::vae_state_dict(*gan_->vae));
    fill(*gan_->discriminator, "discriminator.");
    return tree_of(foreign::vqgan_state_dict(*gan_));
  }

 private:
  muse::Vqgan gan_{nullptr};
};

class MaskGitExporter final : public MuseExporter {
 public:
  MaskGitExporter(const Checkpoint& checkpoint, const std::string& path) : MuseExporter(checkpoint, path) {
    schema_of(config_).apply(checkpoint.meta.at("config").at("model"));
    model_ = muse::TextedMaskGit(config_);
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*model_); }

  Json weights_tree(ExportFor) override {
    require(
        !config_.text.enabled(),
        "[export] {} reads its text with an encoder that was trained along, muse-maskgit-pytorch with a T5; "
        "write a .safetensors file",
        path_);
    fill(*model_, "");
    return tree_of(
        foreign::maskgit_state_dict(*model_->maskgit, vae("vqgan_from"), vae("smaller_vqgan_from")));
  }

 private:
  // Its state_dict has the autoencoders in it.
  muse::VqganVae vae(const char* setting) const {
    const std::string from = checkpoint_.meta.at("config").value(setting, std::string());
    if (from.empty() && std::string(setting) != "vqgan_from") return muse::VqganVae(nullptr);
    require(!from.empty(), "[export] {} does not say where its VQ-GAN is, which goes into the same file",
            path_);
    return muse::open_picture_tokenizer(from)->vae();
  }

  muse::TextedMaskGitConfig config_;
  muse::TextedMaskGit model_{nullptr};
};

}  // namespace

std::unique_ptr<Exporter> make_vqgan_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<VqganExporter>(checkpoint, path);
}

std::unique_ptr<Exporter> make_maskgit_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<MaskGitExporter>(checkpoint, path);
}

}  // namespace melete
