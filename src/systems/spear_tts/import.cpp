// spear-tts-pytorch's three packages, with their optimiser.
#include "config/schema.h"
#include "core/base/error.h"
#include "io/pickled_tensors.h"
#include "systems/spear_tts/foreign_files.h"
#include "systems/spear_tts/task.h"
#include "systems/system.h"

namespace melete::spear_tts {

namespace {

int64_t optimiser_size(const PackageSource& source) {
  const PickleValue* optimiser = source.package ? source.file.root().find("optim") : nullptr;
  const PickleValue* groups = optimiser ? optimiser->find("param_groups") : nullptr;
  int64_t count = 0;
  if (groups && groups->items())
    for (const PickleValue* group : *groups->items())
      if (const PickleValue* list = group->find("params"); list && list->items())
        count += static_cast<int64_t>(list->items()->size());
  return count;
}

// Adam's states, as our optimiser has them: their rotation is a parameter, ours is not (its state only goes
// along), and their learned key has a dimension more.
void settle_moments(ForeignPackage& package, const TextToSemanticImpl& model,
                    const std::vector<std::string>& order, const std::map<std::string, std::string>& ours) {
  TensorMap& tensors = package.tensors();
  const std::pair<const char*, const char*> parts[] = {
      {".first", "exp_avg"}, {".second", "exp_avg_sq"}, {".step", "step"}};
  const auto parameters = model.named_parameters();
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string name = ours.at(order[i]), key = "optimiser.model." + name;
    if (!tensors.count(key + ".step")) continue;
    const at::Tensor* own = parameters.find(name);
    for (const auto& [suffix, theirs] : parts) {
      at::Tensor& moment = tensors.at(key + suffix);
      if (own != nullptr) {
        if (moment.dim() > 0) moment = moment.reshape(own->sizes());
        continue;
      }
      const std::string place = fmt::format("optim.state.{}.{}", i, theirs);
      tensors["foreign." + place] = moment;
      package.place(place, "foreign." + place);
      tensors.erase(key + suffix);
    }
  }
}

// Theirs warms up to a rate, then a cosine of T_max steps follows.
void read_schedule(const PickleValue* scheduler, int64_t step, PhaseConfig& phase) {
  if (!scheduler) return;
  const auto whole = [&](const char* name, int64_t otherwise) {
    const PickleValue* found = scheduler->find(name);
    return found ? found->integer().value_or(otherwise) : otherwise;
  };
  phase.schedule.kind = "cosine";
  phase.schedule.decay_steps = whole("T_max", 0);
  phase.schedule.warmup_steps = std::max<int64_t>(0, step - whole("last_epoch", 0));
  const PickleValue* rates = scheduler->find("base_lrs");
  if (rates && rates->items() && !rates->items()->empty())
    phase.optimiser.learning_rate = rates->items()->front()->number().value_or(phase.optimiser.learning_rate);
}

ImportedCheckpoint import_package(const PackageSource& source) {
  std::vector<std::string> notes;
  const TensorMap state = tensors_below(*source.state, source.file.mapping());
  const ForeignSettings settings = foreign_settings(arguments_of_file(state, source.given, notes));
  TextToSemantic model(settings.model);
  load_state_dict(*model, state);
  const ForeignTraining training = training_of_file(*model, source.path, optimiser_size(source), notes);
  ForeignPackage package(source, training.trainer.task);
  package.notes() = notes;

  std::map<std::string, std::string> ours;
  std::vector<NamedPair> pairs;
  const auto parameters = model->named_parameters();
  for (const ForeignTensor& own : foreign_tensors(*model))
    for (const std::string& theirs : own.theirs) {
      const at::Tensor* parameter = parameters.find(own.ours);
      pairs.push_back({own.ours, theirs, parameter ? *parameter : own.tensor});
      ours[theirs] = own.ours;
    }
  package.take_weights(pairs);

  TaskConfig task;
  task.loss = settings.loss;
  task.deletion.as_upstream = true;
  task.frozen_encoder_layers = training.frozen_encoder_layers;
  const std::vector<std::string> order =
      foreign_parameters(*model, training.trainer.direction, training.frozen_encoder_layers).in_optimiser;
  const bool optimiser = package.read_optimiser("optim", "model", order, &task.phase);
  if (optimiser) {
    settle_moments(package, *model, order, ours);
    int64_t step = 0;
    for (const auto& [key, tensor] : package.tensors())
      if (key.starts_with("optimiser.model.") && key.ends_with(".step"))
        step = std::max(step, tensor.item<int64_t>());
    read_schedule(package.part("scheduler"), step, task.phase);
  } else {
    package.notes().push_back("the file has no optimiser: training starts it anew");
  }
  package.notes().push_back(
      "the file does not say whose tokens of speech and text it was trained on; give its tokenizers to train "
      "and "
      "generate");
  const std::unique_ptr<Recipe> recipe = make_recipe(training.trainer.task);
  recipe->schema().apply({{"model", schema_of(const_cast<TextToSemanticConfig&>(settings.model)).json()},
                          {"task", schema_of(task).json()}});
  int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
  return package.finish(*recipe, {{"model", count}, {"total", count}}, optimiser);
}

}  // namespace

}  // namespace melete::spear_tts

namespace melete {

ImportedCheckpoint import_spear_tts(const PackageSource& source) {
  return spear_tts::import_package(source);
}

}  // namespace melete
