#include "systems/audiolm/task.h"

#include <cmath>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/batch.h"

namespace melete {

namespace {

// Loss and accuracy of guessing among so many tokens, by the name of the loss.
void add_chance(std::map<std::string, double>& levels, const std::string& name, const std::string& accuracy,
                int64_t classes) {
  levels[name] = std::log(static_cast<double>(classes));
  levels[accuracy] = 1 / static_cast<double>(classes);
}

}  // namespace

StageTaskConfig::StageTaskConfig() {
  phase.optimiser.learning_rate = 3e-4;
  phase.clip_norm = 0.5;
}

void describe(Schema& s, StageTaskConfig& c) {
  s.section("loss", c.loss, "what is learned");
  describe(s, c.phase);
}

StageTask::StageTask(const StageTaskConfig& config, nlohmann::ordered_json whole_config)
    : config_(config), whole_config_(std::move(whole_config)) {}

std::vector<Phase> StageTask::phases() {
  Phase phase = make_phase("transformer", config_.phase);
  phase.groups = {{"transformer", parameters_of(model())}};
  phase.loss = [this](const Batch& batch, const StepContext& context) {
    const StageLosses result = losses(input(batch, context));
    return Losses{result.total, result.named, {{"loss", result.chance}}};
  };
  return {phase};
}

StageInput StageTask::input(const Batch& batch, const StepContext& context) {
  StageInput result;
  result.semantic = batch.find_on_host("semantic");
  result.acoustic = batch.find_on_host("acoustic");
  result.condition = stage().condition(batch.find_words("text"), batch.find("text_features"),
                                       context.training ? context.draws : nullptr);
  result.forget = context.training;
  result.draws = context.draws;
  return result;
}

Losses StageTask::validate(const Batch& batch, const StepContext& context) {
  const StageLosses result = losses(input(batch, context));
  Losses all{result.total, {{"loss", result.total}, {"perplexity", result.total.exp()}}};
  for (const auto& named : result.named) all.named.push_back(named);
  all.chance = {{"loss", result.chance}, {"perplexity", result.chance.exp()}};
  return all;
}

void StageTask::write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) {
  if (sampler_) sampler_->write(batch, label, writer);
}

std::map<std::string, double> SemanticTask::chance_levels() const {
  std::map<std::string, double> levels;
  add_chance(levels, "loss", "accuracy", model_->config().semantic_tokens + 1);
  return levels;
}

std::map<std::string, double> CoarseTask::chance_levels() const {
  std::map<std::string, double> levels;
  add_chance(levels, "semantic", "semantic_accuracy", model_->config().semantic_tokens + 1);
  add_chance(levels, "coarse", "coarse_accuracy", model_->config().codebook_size + 1);
  return levels;
}

std::map<std::string, double> FineTask::chance_levels() const {
  std::map<std::string, double> levels;
  add_chance(levels, "coarse", "coarse_accuracy", model_->config().codebook_size);
  add_chance(levels, "fine", "fine_accuracy", model_->config().codebook_size);
  return levels;
}

}  // namespace melete
