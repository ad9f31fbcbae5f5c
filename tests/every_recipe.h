// Every recipe in the list, present and future, small and ready to train on noise; and a toy system, to show
// that a new one is one file and one line.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measure/noise_batches.h"
#include "systems/system.h"
#include "train/feed.h"
#include "train/trainer.h"

namespace melete {

// A toy system: it learns a matrix from recordings.
class ToyRecipe : public RecordingsRecipe {
 public:
  class ToyTask : public Task {
   public:
    explicit ToyTask(nlohmann::ordered_json whole) : whole_(std::move(whole)) {}
    std::string name() const override { return "toy-matrix"; }
    torch::nn::Module& model() override { return *net_; }
    std::vector<Phase> phases() override {
      Phase phase;
      phase.name = "matrix";
      phase.groups = {{"matrix", parameters_of_net()}};
      phase.loss = [this](const Batch& batch, const StepContext&) { return losses(batch); };
      return {phase};
    }
    nlohmann::ordered_json config() const override { return whole_; }
    Losses validate(const Batch& batch, const StepContext&) override { return losses(batch); }
    void write_samples(const Batch&, const std::string&, SampleWriter&) override {}

   private:
    NamedTensors parameters_of_net() {
      NamedTensors all;
      for (const auto& item : net_->named_parameters()) all.emplace_back(item.key(), item.value());
      return all;
    }
    Losses losses(const Batch& batch) {
      const at::Tensor x = batch["wave"].narrow(1, 0, 16);
      return {at::mse_loss(net_(x), x * 2), {}};
    }
    nlohmann::ordered_json whole_;
    torch::nn::Linear net_{16, 16};
  };

  ToyRecipe() { data.segment_samples = 64; }
  std::string name() const override { return "toy-matrix"; }
  void settle() override { data.rates_hz = {8000}; }
  std::unique_ptr<Task> make_task() override { return std::make_unique<ToyTask>(schema().json()); }
  Feed open(const OpenRequest& request) override { return open_recordings(*this, request); }
  Batch example(int64_t items) override {
    Batch batch;
    batch.set("wave", at::randn({items, 64}));
    return batch;
  }

 protected:
  void describe_task(Schema&) override {}
};

// The one line.
inline void add_toy() {
  static const bool added = [] {
    add_system(
        {"toy", "for tests", {{"toy-matrix", "a matrix", [] { return std::make_unique<ToyRecipe>(); }, {}}}});
    return true;
  }();
  (void)added;
}

// The small settings of a recipe, where it has some: recipes/<room>/<name>_tiny.toml, or the room's
// tiny.toml.
inline std::string tiny_file(std::string name) {
  namespace fs = std::filesystem;
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MELETE_SOURCE_DIR) / "recipes")) {
    const fs::path& path = entry.path();
    if (path.stem() == name + "_tiny" || (path.stem() == "tiny" && path.parent_path().filename() == name))
      return path.string();
  }
  return "";
}

// What small recipes leave out: the same recipes with more parts. `label` is fit for a file's name.
struct VariedRecipe {
  std::string label, recipe;
  std::vector<std::pair<std::string, std::string>> settings;

  void apply(Schema& schema) const {
    for (const auto& [name, value] : settings) schema.set(name, value);
  }
};

inline const std::vector<VariedRecipe>& varied_recipes() {
  static const std::vector<VariedRecipe> all = {
      {"vqgan-discriminator",
       "vqgan",
       {{"model.loss.adversarial", "hinge"},
        {"model.discriminator.layers", "2"},
        {"gradient_penalty_every", "2"},
        {"model.vae.quantizer.kind", "lfq"},
        {"model.vae.quantizer.codebook_size", "64"}}},
      {"vqgan-own-batches",
       "vqgan",
       {{"model.loss.adversarial", "bce"},
        {"model.discriminator.layers", "2"},
        {"own_discriminator_batches", "true"},
        // Codebooks that are averages would move twice where halves come in turn.
        {"model.vae.quantizer.kind", "lfq"},
        {"model.vae.quantizer.codebook_size", "64"}}},
      {"maskgit-self-critic",
       "maskgit",
       {{"model.critic", "self"},
        {"model.transformer.self_condition", "true"},
        {"model.self_condition_share", "0.6"},
        {"model.unmasked_share", "0.2"}}},
      {"maskgit-critic",
       "maskgit",
       {{"model.critic", "separate"},
        {"model.critic_transformer.dim", "32"},
        {"model.critic_transformer.depth", "1"},
        {"model.critic_transformer.heads", "2"},
        {"model.critic_transformer.head_dim", "16"}}},
  };
  return all;
}

struct Prepared {
  std::unique_ptr<Recipe> recipe;
  std::unique_ptr<Task> task;
  std::unique_ptr<NoiseBatches> batches;
  TrainerConfig config;
};

// `change` has the last word on the settings.
inline Prepared prepare(const std::string& name, int64_t items,
                        const std::function<void(Schema&)>& change = {}) {
  Prepared made;
  made.recipe = make_recipe(name);
  Schema schema = made.recipe->schema();
  if (const std::string file = tiny_file(name); !file.empty()) schema.apply_file(file);
  if (change) change(schema);
  schema.check();
  made.recipe->settle_on_paper();
  torch::manual_seed(1);
  made.task = made.recipe->make_task();
  made.batches = std::make_unique<NoiseBatches>(made.recipe->example(items));
  made.config = made.recipe->train;
  made.config.steps = 1000;
  return made;
}

}  // namespace melete
