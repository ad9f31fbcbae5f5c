// Checkpoints as spear-tts-pytorch's three trainers save them.
#include "config/schema.h"
#include "core/base/error.h"
#include "io/python_call.h"
#include "systems/spear_tts/foreign_files.h"
#include "systems/spear_tts/task.h"
#include "systems/spear_tts/training.h"
#include "train/torch_optimiser.h"

namespace melete::spear_tts {

namespace {

class SpearExporter final : public Exporter {
 public:
  SpearExporter(const Checkpoint& checkpoint, const std::string& path) : Exporter(checkpoint, path) {
    const Json& config = checkpoint_.meta.at("config");
    schema_of(settings_.model).apply(config.at("model"));
    schema_of(task_).apply(config.at("task"));
    settings_.loss = task_.loss;
    model_ = TextToSemantic(settings_.model);
    const std::string task = checkpoint_.meta.value("task", "");
    for (const ForeignTrainer& trainer : foreign_trainers())
      if (trainer.task == task) direction_ = trainer.direction;
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*model_); }

  Json weights_tree(ExportFor) override {
    return {{"model", state_dict_of([&](const std::string& ours) { return wanted(ours); })}};
  }

  Json training_tree() override {
    if (direction_ == kTextToSpeech)
      note(fmt::format("its TextToSemanticTrainer goes on with freeze_encoder_layers_below = {}",
                       task_.frozen_encoder_layers));
    return {{"model", state_dict_of([&](const std::string& ours) { return stored("model." + ours); })},
            {"optim", optimiser()},
            {"scheduler", scheduler()}};
  }

 private:
  template <class Weight>
  Json state_dict_of(Weight weight) {
    const at::NoGradGuard no_grad;
    for (auto& item : model_->named_parameters()) item.value().copy_(weight(item.key()));
    for (auto& item : model_->named_buffers()) item.value().copy_(weight(item.key()));
    Json entries = Json::array();
    for (const auto& [name, own] : state_entries(*model_))  // one tensor under all its names
      entries.push_back({name, reference("model." + own.theirs.front(), own.tensor.detach())});
    note("spear-tts-pytorch builds this model with " +
         python_call("TextToSemantic", foreign_arguments(settings_)));
    if (settings_.model.text.padding < 0)
      note("its text has no padding id below the end: give TextToSemantic text_pad_id = -1, too");
    return {{"$ordered", entries}};
  }

  // The state of torch.optim.Adam over what that trainer hands it.
  Json optimiser() {
    require(
        task_.freeze || direction_ == kSpeechToSpeech,
        "[{}] spear-tts-pytorch's trainer freezes parts of the model, and this run trained everything; try "
        "--for finetune",
        path_);
    std::map<std::string, ForeignTensor> by_name;
    for (const ForeignTensor& own : foreign_tensors(*model_)) by_name[own.theirs.front()] = own;
    OptimiserConfig& settings = task_.phase.optimiser;
    TorchOptimiser like{.phase = "model", .settings = schema_of(settings).json(), .path = path_};
    for (const std::string& theirs :
         foreign_parameters(*model_, direction_, task_.frozen_encoder_layers).in_optimiser) {
      const ForeignTensor& own = by_name.at(theirs);
      like.order.push_back(own.ours);  // a rotation has no name here, and no state
      like.shapes[own.ours] = own.tensor.sizes().vec();
    }
    Json made = torch_optimiser_state(
        checkpoint_, std::move(like),
        [this](const std::string& name, const at::Tensor& tensor) { return reference(name, tensor); });
    for (Json& group : made.at("param_groups")) {
      group["lr"] = rate_now();
      group["initial_lr"] = settings.learning_rate;
    }
    return made;
  }

  int64_t step() const { return checkpoint_.meta.value("step", int64_t{0}); }
  int64_t run_steps() const { return checkpoint_.meta.at("config").at("train").value("steps", int64_t{1}); }
  double rate_now() const {
    return Schedule(task_.phase.schedule, task_.phase.optimiser.learning_rate, run_steps())
        .rate(std::max<int64_t>(0, step() - 1));
  }

  Json scheduler() const {
    const ScheduleConfig& schedule = task_.phase.schedule;
    const int64_t since_warmup = std::max<int64_t>(0, step() - schedule.warmup_steps);
    return {{"T_max", schedule.decay_steps > 0 ? schedule.decay_steps : run_steps()},
            {"eta_min", 0},
            {"base_lrs", {task_.phase.optimiser.learning_rate}},
            {"last_epoch", since_warmup},
            {"verbose", false},
            {"_step_count", since_warmup + 1},
            {"_get_lr_called_within_step", false},
            {"_last_lr", {rate_now()}}};
  }

  ForeignSettings settings_;
  TaskConfig task_;
  TextToSemantic model_{nullptr};
  Direction direction_ = kTextToSpeech;
};

}  // namespace

}  // namespace melete::spear_tts

namespace melete {

std::unique_ptr<Exporter> make_spear_tts_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<spear_tts::SpearExporter>(checkpoint, path);
}

}  // namespace melete
