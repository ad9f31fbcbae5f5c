// Voicebox of voicebox-pytorch, with its optimiser.
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
