// A SoundStream of audiolm-pytorch with its discriminators, its average and the optimisers of all of them.
#include <torch/nn/module.h>

#include "core/base/error.h"
#include "systems/soundstream/foreign_files.h"
#include "systems/soundstream/task.h"
#include "train/foreign_package.h"

namespace melete {

namespace {

class SoundStreamImport {
 public:
  explicit SoundStreamImport(const PackageSource& source) : package_(source, "soundstream") {
    config_.model = audiolm_pytorch::soundstream_config_of_file(
        package_.constructor_arguments(), package_.state(), package_.given(), package_.notes());
    require(
        !config_.model.codec.quantizer.affine,
        "[{}] its codebooks are affine (affine_param), and such a run cannot be taken over; try one without",
        package_.path());
    gan_ = SoundStreamGan(config_.model);
    audiolm_pytorch::load_soundstream(gan_, package_.state());
    pairs_ = audiolm_pytorch::soundstream_pairs(*gan_, "", config_.model);
  }

  ImportedCheckpoint run() {
    package_.take_weights(pairs_);
    config_.own_discriminator_batches = true;
    const bool average = read_average(), optimisers = read_optimisers();
    if (!average || !optimisers)
      package_.notes().push_back("the file has no optimisers or no average: training starts them anew");

    const std::unique_ptr<Recipe> recipe = make_recipe("soundstream");
    recipe->train.ema.enabled = average;
    for (PhaseConfig* phase : {&config_.generator, &config_.discriminator})
      phase->schedule.upstream_warmup = false;
    Schema schema = recipe->schema();
    SoundStreamTaskConfig own = config_;
    schema.apply(schema_of(own).json());
    recipe->settle();
    int64_t codec = 0, discriminators = 0;
    for (const auto& item : gan_->named_parameters())
      (item.key().starts_with("codec.") ? codec : discriminators) += item.value().numel();
    return package_.finish(
        *recipe, {{"generator", codec}, {"discriminator", discriminators}, {"total", codec + discriminators}},
        average && optimisers);
  }

 private:
  bool read_average() {
    const PickleValue* average = package_.part("ema_model");
    if (!average) return false;
    const TensorMap state = package_.tensors_of(*average);
    const auto read = [&](const std::string& name) -> const at::Tensor& {
      const auto found = state.find(name);
      require(found != state.end(), "[{}] its ema_model lacks `{}`", package_.path(), name);
      return found->second;
    };
    for (const auto& pair : pairs_) {
      const at::Tensor& averaged = read("ema_model." + pair.theirs);
      require(averaged.numel() == pair.tensor.numel(), "[{}] `ema_model.{}` has another shape than the model",
              package_.path(), pair.theirs);
      if (!pair.tensor.is_floating_point()) continue;
      package_.tensors()["ema.average." + pair.ours] = averaged.reshape(pair.tensor.sizes());
      package_.place("ema_model.ema_model." + pair.theirs, "ema.average." + pair.ours);
      package_.place("ema_model.online_model." + pair.theirs, "model." + pair.ours);
    }
    package_.tensors()["ema.step"] = read("step").reshape({}).to(at::kLong);
    package_.tensors()["ema.started"] = read("initted").reshape({}).to(at::kLong);
    package_.place("ema_model.step", "ema.step");
    package_.place("ema_model.initted", "ema.started");
    return true;
  }

  bool read_optimisers() {
    const std::vector<std::string> names = package_.parameter_names(*gan_);
    const auto below = [&](const std::string& prefix) {
      std::vector<std::string> some;
      for (const std::string& name : names)
        if (name.starts_with(prefix)) some.push_back(name);
      return some;
    };
    bool all = package_.read_optimiser("optim", "generator", audiolm_pytorch::generator_order(names),
                                       &config_.generator);
    all = package_.read_optimiser("discr_optim", "discriminator", below("stft_discriminator."),
                                  &config_.discriminator) &&
          all;
    for (size_t i = 0; i < config_.model.discriminator_scales.size(); ++i)
      all = package_.read_optimiser(fmt::format("multiscale_discr_optimizer_{}", i), "discriminator",
                                    below(fmt::format("discriminators.{}.", i)), nullptr) &&
            all;
    return all;
  }

  ForeignPackage package_;
  SoundStreamTaskConfig config_;
  SoundStreamGan gan_{nullptr};
  std::vector<NamedPair> pairs_;
};

}  // namespace

ImportedCheckpoint import_soundstream(const PackageSource& source) {
  return SoundStreamImport(source).run();
}

}  // namespace melete
