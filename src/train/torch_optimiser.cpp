#include "train/torch_optimiser.h"

#include <algorithm>

#include "core/base/error.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

Json adam_group(const Json& settings, double weight_decay) {
  return {{"lr", settings.at("learning_rate")},
          {"betas", {{"$tuple", {settings.at("beta1"), settings.at("beta2")}}}},
          {"eps", settings.at("eps")},
          {"weight_decay", weight_decay == 0 ? Json(0) : Json(weight_decay)},
          {"amsgrad", false},
          {"maximize", false},
          {"foreach", nullptr},
          {"capturable", false},
          {"differentiable", false},
          {"fused", false}};
}

Json lion_group(const Json& settings, double weight_decay) {
  return {{"lr", settings.at("learning_rate")},
          {"betas", {{"$tuple", {settings.at("beta1"), settings.at("beta2")}}}},
          {"weight_decay", weight_decay}};
}

}  // namespace

Json torch_optimiser_state(const Checkpoint& checkpoint, TorchOptimiser optimiser, const ReferTo& reference) {
  const Json& settings = optimiser.settings;
  const bool lion = settings.value("kind", "adam") == "lion";
  const double decay = settings.at("weight_decay").get<double>();
  const auto weight = [&](const std::string& name) {
    const auto found = checkpoint.tensors.find("model." + name);
    require(found != checkpoint.tensors.end(), "[export] {} has no weight `{}`", optimiser.path, name);
    return found->second;
  };
  std::vector<std::string>& order = optimiser.order;
  size_t matrices = order.size();
  if (decay > 0) {
    const auto rest = std::stable_partition(order.begin(), order.end(),
                                            [&](const std::string& name) { return weight(name).dim() >= 2; });
    matrices = static_cast<size_t>(rest - order.begin());
  }
  Json state = Json::array();
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string key = fmt::format("optimiser.{}.{}", optimiser.phase, order[i]);
    const auto moment = [&](const char* ours, const char* theirs) {
      const auto found = checkpoint.tensors.find(key + ours);
      require(found != checkpoint.tensors.end(), "[export] {} lacks `{}{}`", optimiser.path, key, ours);
      const auto shape = optimiser.shapes.find(order[i]);
      return reference(
          fmt::format("{}.state.{}.{}", optimiser.place, i, theirs),
          shape == optimiser.shapes.end() ? found->second : found->second.reshape(shape->second));
    };
    if (!checkpoint.tensors.count(key + ".first")) continue;  // never had a gradient
    Json moments;
    if (!lion)
      moments["step"] = reference(fmt::format("{}.state.{}.step", optimiser.place, i),
                                  checkpoint.tensors.at(key + ".step").to(at::kFloat));
    moments["exp_avg"] = moment(".first", "exp_avg");
    if (!lion) moments["exp_avg_sq"] = moment(".second", "exp_avg_sq");
    state.push_back({i, moments});
  }
  require(!state.empty(), "[export] {} holds no optimiser; try --for finetune", optimiser.path);
  const auto group = [&](size_t from, size_t to, double weight_decay) {
    Json made = lion ? lion_group(settings, weight_decay) : adam_group(settings, weight_decay);
    made["params"] = Json::array();
    for (size_t i = from; i < to; ++i) made["params"].push_back(i);
    return made;
  };
  Json groups = Json::array({group(0, matrices, decay)});
  if (matrices < order.size()) groups.push_back(group(matrices, order.size(), 0));
  return {{"state", {{"$dict", state}}}, {"param_groups", groups}};
}

}  // namespace melete
