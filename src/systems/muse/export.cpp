// Checkpoints as muse-maskgit-pytorch loads them: bare state_dicts, as its own trainer leaves them, and that
// trainer's package.
#include "config/schema.h"
#include "core/base/error.h"
#include "io/python_call.h"
#include "systems/muse/foreign_files.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/load.h"
#include "systems/muse/system.h"
#include "systems/muse/vqgan.h"
#include "train/torch_optimiser.h"

namespace melete {

namespace {

namespace foreign = muse_maskgit_pytorch;

class MuseExporter : public Exporter {
 public:
  using Exporter::Exporter;

 protected:
  using Weight = std::function<at::Tensor(const std::string& ours)>;

  // The weights that are wanted, in a module that was made for them.
  void fill(torch::nn::Module& module, const std::string& prefix) {
    fill(module, prefix, [this](const std::string& ours) { return wanted(ours); });
  }
  void fill(torch::nn::Module& module, const std::string& prefix, const Weight& weight) {
    for (auto& item : module.named_parameters()) item.value().copy_(weight(prefix + item.key()));
    for (auto& item : module.named_buffers()) item.value().copy_(weight(prefix + item.key()));
  }
  // place: before the names of tensors in the file, so that one may be there several times. They are copies,
  // since the module may be filled anew.
  Json entries_of(const TensorMap& state, const std::string& place, const std::string& prefix = "") {
    Json entries = Json::array();
    for (const auto& [name, tensor] : state)
      entries.push_back({prefix + name, reference(place + prefix + name, tensor.clone())});
    return entries;
  }
  Json tree_of(const TensorMap& state, const std::string& place = "") {
    return {{"$ordered", entries_of(state, place)}};
  }
};

class VqganExporter final : public MuseExporter {
 public:
  VqganExporter(const Checkpoint& checkpoint, const std::string& path) : MuseExporter(checkpoint, path) {
    schema_of(config_).apply(checkpoint.meta.at("config").at("model"));
    gan_ = muse::Vqgan(config_);
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*gan_); }
  bool used_in_inference(const std::string& ours) const override { return ours.starts_with("vae."); }

  Json weights_tree(ExportFor purpose) override {
    fill(*gan_->vae, "vae.");
    if (purpose != ExportFor::finetune || !gan_->has_discriminator())
      return built_tree(foreign::vae_state_dict(*gan_->vae));
    fill(*gan_->discriminator, "discriminator.");
    return built_tree(foreign::vqgan_state_dict(*gan_));
  }

  // VQGanVAETrainer's package, and in it the average that its trainer leaves in a file of its own.
  Json training_tree() override {
    fill(*gan_, "", [this](const std::string& ours) { return stored("model." + ours); });
    require(
        gan_->has_discriminator(),
        "[export] {} was trained without a discriminator, and VQGanVAETrainer knows no such training; try "
        "--for finetune",
        path_);
    Json tree = {{"model", built_tree(foreign::vqgan_state_dict(*gan_), "model.")}}, orders;
    for (const auto& [theirs, phase] : {std::pair{"optim", "generator"}, {"discr_optim", "discriminator"}})
      tree[theirs] = optimiser(theirs, phase, orders[theirs]);
    // Upstream's optimisers are built from sets, so its files do not say whose a state is. This one does.
    tree[foreign::kOptimiserOrder] = orders;
    note(fmt::format(
        "muse-maskgit-pytorch gives its optimisers sets of parameters, whose order is another in every "
        "process; here states stand in the order of the parameters' names, which the package has as {}",
        foreign::kOptimiserOrder));
    if (!checkpoint_.tensors.count("ema.step")) return tree;
    tree[foreign::kAverage] = average_tree();
    note(fmt::format(
        "its moving average is in the package as {}, which is what its trainer leaves as *.ema.pt",
        foreign::kAverage));
    return tree;
  }

 private:
  // The weights, and how their model is made.
  Json built_tree(const TensorMap& state, const std::string& place = "") {
    Json arguments = foreign::vqgan_arguments(state);
    arguments["encdec_resnet_groups"] = config_.vae.groups;
    arguments["l2_recon_loss"] = config_.loss.reconstruction == "l2";
    arguments["use_hinge_loss"] = config_.loss.adversarial != "bce";
    const QuantizerConfig& q = config_.vae.quantizer;
    if (q.kind == "lfq")
      arguments["lfq_kwargs"] = {{"entropy_loss_weight", q.entropy_weight},
                                 {"commitment_loss_weight", q.lfq_commitment_weight},
                                 {"diversity_gamma", q.diversity}};
    note("muse-maskgit-pytorch builds this model with " + python_call("VQGanVAE", arguments));
    return tree_of(state, place);
  }

  Json optimiser(const std::string& theirs, const std::string& phase, Json& order) {
    TorchOptimiser like{.phase = phase,
                        .settings = checkpoint_.meta.at("config").at(phase).at("optimiser"),
                        .place = theirs,
                        .path = path_};
    const auto parameters = gan_->named_parameters();
    std::map<std::string, const foreign::NamedPair*> by_name;
    const auto pairs = foreign::vqgan_pairs(*gan_);
    for (const foreign::NamedPair& pair : pairs)
      if (parameters.contains(pair.ours) && pair.theirs.starts_with("discr.") == (phase == "discriminator"))
        by_name[pair.theirs] = &pair;
    for (const auto& [name, pair] : by_name) {
      order.push_back(name);
      like.order.push_back(pair->ours);
      like.shapes[pair->ours] = pair->their_shape;
    }
    return torch_optimiser_state(checkpoint_, like, [this](const std::string& name, const at::Tensor& t) {
      return reference(name, t);
    });
  }

  // As ema_pytorch's EMA saves itself: the model, and its average. The discriminator has none here.
  Json average_tree() {
    Json entries = Json::array();
    const std::string place = std::string(foreign::kAverage) + ".";
    entries.push_back({"initted", reference(place + "initted", stored("ema.started").to(at::kBool))});
    entries.push_back({"step", reference(place + "step", stored("ema.step"))});
    const auto add = [&](const char* prefix) {
      for (Json& entry : entries_of(foreign::vqgan_state_dict(*gan_), place, prefix))
        entries.push_back(entry);
    };
    add("online_model.");
    fill(*gan_, "", [this](const std::string& ours) {
      const auto average = checkpoint_.tensors.find("ema.average." + ours);
      return average == checkpoint_.tensors.end() ? stored("model." + ours) : average->second;
    });
    add("ema_model.");
    return {{"$ordered", entries}};
  }

  muse::VqganConfig config_;
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

  Json training_tree() override {
    fail(
        "[export] muse-maskgit-pytorch has no trainer for MaskGit, and so no package of one; try --for "
        "finetune");
  }

  Json weights_tree(ExportFor) override {
    require(
        !config_.text.enabled(),
        "[export] {} reads its text with an encoder that was trained along, muse-maskgit-pytorch with a T5; "
        "write a .safetensors file",
        path_);
    const auto& reader = config_.maskgit.transformer;
    require(reader.condition_positions == 0 && reader.condition_doublings == 0,
            "[export] {} sees where the tokens of smaller pictures are (condition_positions, "
            "condition_doublings), which muse-maskgit-pytorch does not; write a .safetensors file",
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
