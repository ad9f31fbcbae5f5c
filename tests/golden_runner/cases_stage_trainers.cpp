// Whole training steps of the trainers of AudioLM's three stages, replayed on the one loop.
#include <optional>

#include "core/base/error.h"
#include "data/loader.h"
#include "golden.h"
#include "systems/audiolm/foreign_names.h"
#include "systems/audiolm/task.h"
#include "train/trainer.h"

namespace melete::golden::cases_stage_trainers {

namespace {

using nlohmann::ordered_json;

struct Call {
  std::string name;  // "call.03"
  bool learns = false, wrapper_trains = false;
};

std::vector<Call> recorded_calls(const Case& c) {
  std::vector<Call> calls;
  for (const auto& [key, about] : c.json.at("outputs").items()) {
    const std::string tail = ".loss";
    if (!key.starts_with("out.call.") || !key.ends_with(tail)) continue;
    const std::string doc = about.value("doc", "");
    calls.push_back({key.substr(4, key.size() - 4 - tail.size()),
                     doc.find("grad enabled: True") != std::string::npos,
                     doc.find("wrapper.training=True") != std::string::npos});
  }
  return calls;
}

Batch recorded_batch(const Case& c, const Call& call, int64_t number) {
  Batch batch;
  batch.number = number;
  const std::string prefix = call.name + ".";
  const std::pair<const char*, const char*> columns[] = {{"semantic_token_ids", "semantic"},
                                                         {"codec_indices", "acoustic"},
                                                         {"text_embeds", "text_features"},
                                                         {"text_embeds_from_t5", "text_features"}};
  for (const auto& [theirs, ours] : columns)
    if (c.has("in." + prefix + theirs)) batch.set(ours, c.in(prefix + theirs));
  return batch;
}

class RecordedBatches : public BatchSource {
 public:
  RecordedBatches(const Case& c, std::vector<Call> calls) : case_(c), calls_(std::move(calls)) {}
  Batch batch(int64_t number) override {
    return recorded_batch(case_, calls_.at(static_cast<size_t>(number)), number);
  }

 private:
  const Case& case_;
  std::vector<Call> calls_;
};

// Upstream's wrapper stays in eval after the first validation: no end and no forgetting from then on.
template <class Base>
class ReplayedTask : public Base {
 public:
  template <class Config>
  ReplayedTask(const Config& model, const StageTaskConfig& config) : Base(model, config, {}) {}

  const Call* call = nullptr;

 protected:
  StageInput input(const Batch& batch, const StepContext& context) override {
    StageInput result = Base::input(batch, context);
    result.end = result.forget = call->wrapper_trains;
    result.condition_drop = Base::stage().stage().condition_drop;
    result.keep_padding = true;
    return result;
  }
};

template <class TaskType, class Config>
void replay(const Case& c, Checker& check, const Config& model_config) {
  const auto& given = c.config.at("trainer");
  expect_only_trainer(given, {"num_train_steps", "grad_accum_every", "lr", "wd", "max_grad_norm",
                              "average_valid_loss_over_grad_accum_every"});
  StageTaskConfig task_config;
  task_config.phase.optimiser.learning_rate = given.value("lr", 3e-4);
  task_config.phase.optimiser.weight_decay = given.value("wd", 0.0);
  if (given.contains("max_grad_norm"))
    task_config.phase.clip_norm =
        given["max_grad_norm"].is_null() ? 0 : given["max_grad_norm"].template get<double>();
  ReplayedTask<TaskType> task(model_config, task_config);
  audiolm_pytorch::load_stage(task.model(), c.weights);

  const std::vector<Call> calls = recorded_calls(c);
  std::vector<Call> training;
  for (const Call& call : calls)
    if (call.learns) training.push_back(call);
  RecordedBatches batches(c, training);
  TrainerConfig config;
  config.steps = given.at("num_train_steps").template get<int64_t>();
  config.accumulate = given.value("grad_accum_every", int64_t{1});
  config.ema.enabled = false;
  Trainer trainer({task, batches}, config);
  trainer.set_draws([&](const StepContext& context, int64_t) -> std::unique_ptr<Draws> {
    task.call = &training.at(static_cast<size_t>(context.step * config.accumulate + context.micro_batch));
    return std::make_unique<ReplayDraws>(c, "rand." + task.call->name + ".");
  });

  const auto scalar = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  size_t next = 0;
  for (int64_t step = 0; step < config.steps; ++step) {
    const StepReport report = trainer.step();
    const std::string prefix = fmt::format("step.{}.", step);
    bool found = false;
    for (const auto& [name, value] : report.losses)
      if (name == "loss") {
        check.close(prefix + "loss", scalar(value), c.out(prefix + "loss"));
        found = true;
      }
    if (!found) check.fail("the step reports no loss");
    if (c.has("out." + prefix + "grad_norm"))
      check.close(prefix + "grad_norm", scalar(report.gradient_norms.front().second),
                  c.out(prefix + "grad_norm"));
    // Validation follows the step that it belongs to.
    for (int64_t learned = 0; next < calls.size() && (learned < config.accumulate || !calls[next].learns);
         ++next) {
      if (calls[next].learns) {
        ++learned;
        continue;
      }
      const at::NoGradGuard no_grad;
      task.model().eval();
      task.call = &calls[next];
      ReplayDraws draws(c, "rand." + calls[next].name + ".");
      StepContext context;
      context.training = false;
      context.draws = &draws;
      const Losses losses = task.validate(recorded_batch(c, calls[next], 0), context);
      check.close(calls[next].name + ".loss", losses.total, c.out(calls[next].name + ".loss"));
      task.model().train();
    }
  }
  // Where a gradient is nothing but rounding (a bias that softmax ignores), Adam moves by its sign; the case
  // says how far rounding alone moved upstream's own weights.
  const double rounding =
      c.json.contains("float64_replay") ? c.json["float64_replay"].value("post_max_abs_diff", 0.0) : 0;
  for (const auto& pair : audiolm_pytorch::stage_pairs(task.model())) {
    const std::string key = "post." + pair.theirs;
    if (!c.has(key)) continue;
    const double largest = c.get(key).abs().max().item<double>();
    // The semantic stage's last position bias is one that softmax ignores altogether.
    const bool ignored =
        c.kind == "SemanticTransformerTrainer" && key.ends_with("transformer.rel_pos_bias.net.3.bias");
    const double moved = task_config.phase.optimiser.learning_rate * static_cast<double>(config.steps);
    check.close(key, pair.tensor, c.get(key),
                std::max(kOutputTolerance, (ignored ? 2 * moved : 3 * rounding) / largest));
  }
}

// The model's arguments stand in two places of the case.
ordered_json arguments(const Case& c, std::initializer_list<const char*> names) {
  ordered_json all = c.config.at("transformer");
  for (const char* name : names)
    if (const auto& extra = c.config.at("extra"); extra.contains(name)) all[name] = extra[name];
  return all;
}

void check_semantic(const Case& c, Checker& check) {
  replay<SemanticTask>(
      c, check, audiolm_pytorch::semantic_config(arguments(c, {"num_semantic_tokens", "has_condition"}), 24));
}

void check_coarse(const Case& c, Checker& check) {
  replay<CoarseTask>(c, check,
                     audiolm_pytorch::coarse_config(arguments(c, {"num_semantic_tokens", "codebook_size",
                                                                  "num_coarse_quantizers", "has_condition"}),
                                                    24));
}

void check_fine(const Case& c, Checker& check) {
  replay<FineTask>(c, check,
                   audiolm_pytorch::fine_config(arguments(c, {"codebook_size", "num_coarse_quantizers",
                                                              "num_fine_quantizers", "has_condition"}),
                                                24));
}

const bool registered = register_case("audiolm", "SemanticTransformerTrainer", check_semantic) &&
                        register_case("audiolm", "CoarseTransformerTrainer", check_coarse) &&
                        register_case("audiolm", "FineTransformerTrainer", check_fine);

}  // namespace

}  // namespace melete::golden::cases_stage_trainers
