// Whole steps of MuLaN's trainer.
#include "core/base/error.h"
#include "musiclm.h"
#include "train/optimiser.h"

namespace melete::golden::musiclm_trainer_cases {

using nlohmann::ordered_json;
using namespace musiclm;

namespace {

struct TrainerSettings {
  OptimiserConfig optimiser;
  double clip_norm = 0.5;
  int64_t accumulate = 1;
};

TrainerSettings settings_of(const ordered_json& given) {
  expect_only_trainer(given,
                      {"num_train_steps", "lr", "grad_accum_every", "betas", "max_grad_norm", "use_lion"});
  TrainerSettings settings;
  settings.optimiser.kind = given.value("use_lion", false) ? "lion" : "adam";
  settings.optimiser.learning_rate = given.value("lr", 3e-4);
  settings.optimiser.beta1 = 0.9;
  settings.optimiser.beta2 = 0.99;
  if (given.contains("betas")) {
    settings.optimiser.beta1 = given["betas"].at(0).get<double>();
    settings.optimiser.beta2 = given["betas"].at(1).get<double>();
  }
  settings.accumulate = given.value("grad_accum_every", int64_t{1});
  if (given.contains("max_grad_norm"))
    settings.clip_norm = given["max_grad_norm"].is_null() ? 0 : given["max_grad_norm"].get<double>();
  return settings;
}

// In upstream's order, which the file's optimiser state counts by.
NamedTensors parameters_in_order(const Case& c, Checker* check, Mulan& model) {
  std::map<std::string, at::Tensor> by_name;
  std::vector<std::string> names;
  for (const auto& pair : musiclm_pytorch::pairs(*model)) {
    by_name[pair.theirs] = pair.tensor;
    names.push_back(pair.theirs);
  }
  musiclm_pytorch::sort_as_theirs(names);
  if (check && c.json.contains("optimizer_parameter_order") &&
      c.json["optimizer_parameter_order"].get<std::vector<std::string>>() != names)
    check->fail("parameters stand in another order than upstream's");
  NamedTensors parameters;
  for (const std::string& name : names) parameters.emplace_back(name, by_name.at(name));
  return parameters;
}

// All recorded steps; what they show is checked where a checker is given. -> the weights afterwards
TensorMap train(const Case& c, Mulan& model, const TrainerSettings& settings, Checker* check) {
  Optimiser optimiser(parameters_in_order(c, check, model), settings.optimiser);
  int64_t batch = 0;
  for (int64_t step = 0; c.has(fmt::format("in.batch{}.wavs", batch)); ++step) {
    for (int64_t part = 0; part < settings.accumulate; ++part, ++batch) {
      const std::string prefix = fmt::format("batch{}.", batch);
      MulanDraws draws(c, "rand." + prefix);
      const TextInput text = text_of(c, c.in(prefix + "texts"), c.config.at("text_transformer"));
      const MulanLosses losses = model->losses(model->embed_pairs({c.in(prefix + "wavs"), {}}, text, &draws));
      const std::string name = fmt::format("loss{}", batch);
      if (check) check->close(name, losses.total, c.out(name));
      (losses.total / settings.accumulate).backward();
    }
    const at::Tensor norm = optimiser.gradient_norm();
    const std::string name = fmt::format("grad_norm{}", step);
    if (check && c.has("out." + name)) check->close(name, norm, c.out(name));
    optimiser.step(settings.optimiser.learning_rate, clip_scale(norm.item<double>(), settings.clip_norm));
    optimiser.clear_gradients();
  }
  return musiclm_pytorch::state_dict(model);
}

// Every weight moved by about one unit in its last place, up and down in turn.
void nudge(Mulan& model) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : model->parameters()) {
    const at::Tensor sign = at::arange(weight.numel(), at::kFloat).remainder(2).mul_(2).sub_(1);
    weight.mul_(1 + sign.view_as(weight) * 1.2e-7);
  }
}

// Both optimisers take steps of one size however small a gradient is, so that rounding decides where it is
// nothing but rounding. How far that goes, the same run shows from weights that differ in their last place.
void check_trainer(const Case& c, Checker& check) {
  Mulan model = load_mulan(c), nudged = load_mulan(c);
  nudge(nudged);
  const TrainerSettings settings = settings_of(c.config.at("trainer"));
  const TensorMap state = train(c, model, settings, &check), other = train(c, nudged, settings, nullptr);
  int64_t batches = 0;
  while (c.has(fmt::format("in.batch{}.wavs", batches))) ++batches;
  const double farthest =
      settings.optimiser.learning_rate * static_cast<double>(batches / settings.accumulate);
  for (const auto& [name, want] : below(c.io, "out.final.")) {
    const auto found = state.find(name);
    if (found == state.end()) {
      check.fail("nothing here makes " + name);
      continue;
    }
    const double rounding =
        softmax_ignores(name) ? farthest : (found->second - other.at(name)).abs().max().item<double>();
    const double largest = std::max(want.abs().max().item<double>(), 1e-12);
    check.close("final." + name, found->second.reshape(want.sizes()), want,
                std::max(kOutputTolerance, 3 * rounding / largest));
  }
}

const bool registered = register_case("musiclm", "MuLaNTrainer", check_trainer);

}  // namespace

}  // namespace melete::golden::musiclm_trainer_cases
