// Training MuLaN: pairs of sound and text, each held against all others of the batch.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/text_tokenizer.h"
#include "systems/musiclm/labels.h"
#include "systems/musiclm/mulan.h"
#include "train/phase_config.h"

namespace melete {
class Group;
}

namespace melete::musiclm {

struct MulanTaskConfig {
  PhaseConfig phase;
  int64_t chunk = 0;  // rows that are run at once; 0: all
  Templates templates;

  MulanTaskConfig();
};
void describe(Schema& schema, MulanTaskConfig& config);

// The bytes of a tokenizer's file, as checkpoints keep them; undefined where it has none.
at::Tensor kept_file(const TextTokenizer& tokenizer);

// The loss of guessing among n pairs.
double chance_of_contrast(const std::string& kind, int64_t n);

// Batches have "wave" [items, samples] with its lengths, and the words "text" or "tags" or both.
class MulanTask : public Task {
 public:
  MulanTask(const MulanConfig& model, const MulanTaskConfig& config,
            std::shared_ptr<const TextTokenizer> text, int64_t batch_size,
            nlohmann::ordered_json whole_config);

  std::string name() const override { return "mulan"; }
  torch::nn::Module& model() override { return *model_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  std::map<std::string, double> chance_levels() const override;
  MainFigure main_figure() const override { return {"text_to_audio_recall_1", true}; }
  // The tokenizer's file, where it has one.
  void save_state(TensorMap& tensors) const override;

  Mulan& mulan() { return model_; }

 private:
  struct Pairs {
    AudioInput audio;
    TextInput text;
    std::vector<std::string> words;
    int64_t cut = 0;  // texts longer than the window
  };
  // draws: of labels and templates; none: the first of them. distinct: the first item of every text only.
  Pairs pairs(const Batch& batch, Draws* draws, bool distinct) const;
  std::vector<std::vector<Label>> labels(const Batch& batch) const;  // of each item
  Losses losses(const Batch& batch, const StepContext& context);
  Group* group() const;  // null: alone

  MulanTaskConfig config_;
  std::shared_ptr<const TextTokenizer> text_;
  nlohmann::ordered_json whole_config_;
  Mulan model_;
  int64_t shortest_samples_ = 0;  // that even the fastest stretch leaves a patch of
  int64_t columns_;               // pairs that the last loss was over
};

}  // namespace melete::musiclm
