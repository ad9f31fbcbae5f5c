// Voicebox of voicebox-pytorch, with its optimiser.
#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "systems/voicebox/foreign_names.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/task.h"
#include "train/foreign_package.h"

namespace melete {

namespace {

using namespace voicebox;
using Json = nlohmann::ordered_json;

// What the shapes tell, and what was given besides; a contradiction is an Error.
Json arguments_of(const TensorMap& state, const Json& given, const std::string& path) {
  Json arguments = voicebox_pytorch::voicebox_arguments_of_file(state, path);
  if (given.is_null()) return arguments;
  for (const auto& [name, value] : given.items()) {
    require(!arguments.contains(name) || arguments[name] == value,
            "[{}] {} = {} was given, and the weights are those of {}", path, name, value.dump(),
            arguments.value(name, Json()).dump());
    arguments[name] = value;
  }
  return arguments;
}

// The rate that was asked for, which is not the one in force, and the cosine that it follows; how long the
// warm-up was, from how many of the steps the scheduler has counted.
void read_scheduler(const PickleValue& scheduler, int64_t steps, PhaseConfig& phase) {
  const auto number = [&](const char* name) {
    const PickleValue* found = scheduler.find(name);
    return found ? found->number() : std::optional<double>();
  };
  const PickleValue* rates = scheduler.find("base_lrs");
  if (rates && rates->items() && !rates->items()->empty())
    phase.optimiser.learning_rate = rates->items()->front()->number().value_or(phase.optimiser.learning_rate);
  const auto counted = static_cast<int64_t>(number("last_epoch").value_or(0));
  const auto period = static_cast<int64_t>(number("T_max").value_or(0));
  if (counted > 0 && counted <= steps) phase.schedule.warmup_steps = steps - counted;
  if (period > 0) phase.schedule.decay_steps = period;
  if (const auto minimum = number("eta_min"); minimum && *minimum <= phase.optimiser.learning_rate)
    phase.schedule.minimum = std::max(0.0, *minimum);
}

}  // namespace

ImportedCheckpoint import_voicebox(const PackageSource& source) {
  ForeignPackage package(source, "voicebox");
  // The trainer saves the network inside of what trains it.
  const std::string prefix = package.state().count("voicebox.to_embed.weight") ? "voicebox." : "";
  TensorMap state;
  for (const auto& [name, tensor] : package.state())
    if (name.starts_with(prefix)) state[name.substr(prefix.size())] = tensor;
  const Json arguments = arguments_of(state, source.given, source.path);
  const VoiceboxConfig config =
      voicebox_pytorch::voicebox_config(arguments, voicebox_pytorch::latent_dim_of_file(state));
  Voicebox model(config);
  voicebox_pytorch::load(*model, state, source.path);

  std::vector<NamedPair> pairs;
  for (const auto& pair : voicebox_pytorch::pairs(*model))
    pairs.push_back({pair.ours, prefix + pair.theirs, pair.tensor});
  package.take_weights(pairs);

  TaskConfig task;
  const std::vector<std::string> order = voicebox_pytorch::optimiser_order(*model, prefix);
  const bool optimiser = package.read_optimiser("optim", "network", order, &task.phase);
  int64_t steps = 0;
  for (const auto& [name, tensor] : package.tensors())
    if (name.starts_with("optimiser.") && name.ends_with(".step"))
      steps = std::max(steps, tensor.item<int64_t>());
  if (const PickleValue* scheduler = package.part("scheduler")) read_scheduler(*scheduler, steps, task.phase);
  // Their norms of heads have a dimension more.
  for (const auto& parameter : model->named_parameters())
    for (const char* moment : {".first", ".second"}) {
      const auto found = package.tensors().find("optimiser.network." + parameter.key() + moment);
      if (found != package.tensors().end()) found->second = found->second.reshape(parameter.value().sizes());
    }
  if (!optimiser) package.notes().push_back("the file has no optimiser: training starts it anew");
  package.notes().push_back(
      "the file does not say what its frames are, nor their scale; give features_from, frame_mean 0 and "
      "frame_deviation 1 to train");

  const std::unique_ptr<Recipe> recipe = make_voicebox_recipe();
  VoiceboxConfig model_settings = config;
  recipe->schema().apply({{"model", schema_of(model_settings).json()},
                          {"task", schema_of(task).json()},
                          {"told_by", config.tokens > 0 ? "semantic" : "none"},
                          {"frame_deviation", 1}});
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model->parameters()) parameters += parameter.numel();
  return package.finish(*recipe, {{"network", parameters}, {"total", parameters}}, optimiser);
}

}  // namespace melete
