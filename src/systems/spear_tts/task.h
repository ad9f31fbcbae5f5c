// SPEAR-TTS's three trainings, alike but for their direction: speech to speech with tokens deleted, speech to
// text, and text to speech.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "data/text_tokenizer.h"
#include "systems/spear_tts/deletion.h"
#include "systems/spear_tts/losses.h"
#include "train/phase_config.h"

namespace melete::spear_tts {

struct TaskConfig {
  PhaseConfig phase;
  LossConfig loss;
  DeletionConfig deletion;            // pretraining only
  bool freeze = true;                 // what the stage before has learned; false: everything is trained
  int64_t frozen_encoder_layers = 0;  // text to speech: the lowest so many do not move
  int64_t read_items = 32;            // of a validation, decoded to count reading errors; 0: none

  TaskConfig();
};
void describe(Schema& schema, TaskConfig& config);

// Batches have "semantic" int64 [items, n] and, but for pretraining, "text" int64 [items, n]; both padded
// with -1, without ends.
class SpearTask : public Task {
 public:
  SpearTask(std::string name, Direction direction, const TextToSemanticConfig& model,
            const TaskConfig& config, std::shared_ptr<const TextTokenizer> text,
            nlohmann::ordered_json whole_config);

  std::string name() const override { return name_; }
  torch::nn::Module& model() override { return *model_; }
  std::vector<Phase> phases() override;
  nlohmann::ordered_json config() const override { return whole_config_; }
  Losses validate(const Batch& batch, const StepContext& context) override;
  void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) override;
  std::map<std::string, double> chance_levels() const override;
  MainFigure main_figure() const override;
  // The text tokenizer's file, where it has one.
  void save_state(TensorMap& tensors) const override;

  TextToSemantic& transformer() { return model_; }

 private:
  Losses losses(const Batch& batch, LossPass pass);
  double loss_of_guessing() const;  // among the tokens of the target
  // What each of the first rows is read as, or turned into.
  std::vector<std::vector<int64_t>> translated(const Batch& batch, int64_t rows);

  std::string name_;
  Direction direction_;
  TaskConfig config_;
  std::shared_ptr<const TextTokenizer> text_;
  nlohmann::ordered_json whole_config_;
  TextToSemantic model_;
};

}  // namespace melete::spear_tts
