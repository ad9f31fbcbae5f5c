#include "train/foreign_package.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>

#include "core/base/error.h"
#include "core/base/version.h"
#include "io/base/pickle_json.h"
#include "io/pickled_tensors.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

// Lists and tuples alike as JSON lists.
Json without_tags(const Json& value) {
  if (value.is_object() && value.contains("$tuple")) return without_tags(value["$tuple"]);
  if (!value.is_structured()) return value;
  Json result = value.is_array() ? Json::array() : Json::object();
  for (const auto& [key, item] : value.items())
    if (value.is_array())
      result.push_back(without_tags(item));
    else
      result[key] = without_tags(item);
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

}  // namespace

ForeignPackage::ForeignPackage(const PackageSource& source, const std::string& kind) : source_(source) {
  result_.kind = kind;
  state_ = tensors_of(*source.state);
}

const PickleValue* ForeignPackage::part(const std::string& name) const {
  return source_.package ? source_.file.root().find(name) : nullptr;
}

TensorMap ForeignPackage::tensors_of(const PickleValue& part) const {
  return tensors_below(part, source_.file.mapping());
}

Json ForeignPackage::constructor_arguments() const {
  const PickleValue* config = part("config");
  if (!config) return nullptr;
  const std::string where = source_.path + ": config";
  const auto refuse = [&](const PickleTensor&, const std::string& name) -> Json {
    fail("[{}] a tensor among the settings ({})", where, name);
  };
  if (!config->is(PickleValue::Kind::bytes)) return without_tags(pickle_to_json(*config, refuse));
  const PickleTree tree = unpickle(std::as_bytes(std::span(*config->text())), where);
  return without_tags(pickle_to_json(tree.root(), refuse));
}

void ForeignPackage::take_weights(const std::vector<NamedPair>& pairs) {
  const std::string prefix = source_.package ? "model." : "";
  for (const auto& pair : pairs) {
    tensors()["model." + pair.ours] = pair.tensor.detach();
    place(prefix + pair.theirs, "model." + pair.ours);
    ours_[pair.theirs] = pair.ours;
  }
}

std::vector<std::string> ForeignPackage::parameter_names(const torch::nn::Module& module) const {
  std::set<std::string> parameters;
  for (const auto& item : module.named_parameters()) parameters.insert(item.key());
  std::vector<std::string> names;
  for (const auto& [key, value] : source_.state->dict()->entries) {
    const auto ours = key->text() ? ours_.find(*key->text()) : ours_.end();
    if (ours != ours_.end() && parameters.count(ours->second)) names.push_back(ours->first);
  }
  return names;
}

bool ForeignPackage::read_optimiser(const std::string& key, const std::string& phase,
                                    std::vector<std::string> order, PhaseConfig* settings) {
  const PickleValue* whole = part(key);
  // The codec's trainer has a warm-up around its optimisers, the stages' trainers have none.
  const PickleValue* wrapped = whole ? whole->find("optimizer") : nullptr;
  const PickleValue* inner = wrapped ? wrapped : whole;
  const PickleValue* state = inner ? inner->find("state") : nullptr;
  const PickleValue* groups = inner ? inner->find("param_groups") : nullptr;
  if (!state || !groups || !groups->items() || groups->items()->empty()) return false;
  if (groups->items()->size() == 2) {  // with weight decay: matrices first, then the rest
    std::stable_partition(order.begin(), order.end(),
                          [&](const std::string& name) { return state_.at(name).dim() >= 2; });
  }
  const std::string where = source_.path + ": " + key;
  size_t parameters = 0;
  for (const PickleValue* group : *groups->items())
    if (const PickleValue* list = group->find("params"))
      if (list->items()) parameters += list->items()->size();
  require(parameters == order.size(), "[{}] an optimiser of {} parameters, the model has {} there", where,
          parameters, order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const PickleValue* moments = state->find(static_cast<int64_t>(i));
    if (!moments) continue;  // never had a gradient
    const std::string name = fmt::format("optimiser.{}.{}", phase, ours_.at(order[i]));
    const std::string at = fmt::format("{}{}.state.{}", key, wrapped ? ".optimizer" : "", i);
    const auto read = [&](const char* what) {
      const PickleTensor* tensor = moments->at(what, where).tensor();
      require(tensor != nullptr, "[{}] `{}` of parameter {} is no tensor", where, what, i);
      at::Tensor made = to_tensor(*tensor, source_.file.mapping(), at);
      require(made.sizes() == state_.at(order[i]).sizes(),
              "[{}] `{}` of parameter {} does not have the shape of `{}`", where, what, i, order[i]);
      return made;
    };
    const bool lion = moments->find("exp_avg_sq") == nullptr;  // it has one moment, and counts no steps
    if (settings && lion) settings->optimiser.kind = "lion";
    tensors()[name + ".first"] = read("exp_avg");
    place(at + ".exp_avg", name + ".first");
    if (!lion) {
      tensors()[name + ".second"] = read("exp_avg_sq");
      place(at + ".exp_avg_sq", name + ".second");
    }
    const PickleValue* step = lion ? moments->find("step") : &moments->at("step", where);
    int64_t steps = step ? step->integer().value_or(0) : std::max<int64_t>(1, step_from_name());
    if (step && step->tensor()) {
      require(step->tensor()->numel() == 1, "[{}] `step` of parameter {} has {} values", where, i,
              step->tensor()->numel());
      steps = to_tensor(*step->tensor(), source_.file.mapping(), at).item().toLong();
    }
    tensors()[name + ".step"] = at::scalar_tensor(steps, at::kLong);
    step_ = std::max(step_, steps);
    place(at + ".step", name + ".step");
  }
  if (settings) read_settings(*whole, *groups->items()->front(), *settings);
  return true;
}

// What is written of the learning rate: its value now, or before schedulers touched it.
void ForeignPackage::read_settings(const PickleValue& whole, const PickleValue& group,
                                   PhaseConfig& settings) const {
  const auto number = [](const PickleValue* value) {
    return value ? value->number() : std::optional<double>();
  };
  if (const auto rate = number(group.find("lr"))) settings.optimiser.learning_rate = *rate;
  if (const auto decay = number(group.find("weight_decay"))) settings.optimiser.weight_decay = *decay;
  if (const auto eps = number(group.find("eps"))) settings.optimiser.eps = *eps;
  if (const PickleValue* betas = group.find("betas");
      betas && betas->items() && betas->items()->size() == 2) {
    settings.optimiser.beta1 = number(betas->items()->at(0)).value_or(0.9);
    settings.optimiser.beta2 = number(betas->items()->at(1)).value_or(0.99);
  }
  const PickleValue* warmup = whole.find("warmup");
  const PickleValue* rows = warmup ? warmup->find("warmup_params") : nullptr;
  if (rows && rows->items() && !rows->items()->empty())
    if (const PickleValue* period = rows->items()->front()->find("warmup_period"))
      settings.schedule.warmup_steps = period->integer().value_or(0);
}

int64_t ForeignPackage::step_from_name() const {
  std::smatch match;
  const std::string stem = std::filesystem::path(source_.path).stem().string();
  return std::regex_search(stem, match, std::regex(R"(\.(\d{1,12})$)")) ? std::stoll(match.str(1)) + 1 : 0;
}

// The package's tree, so that it can be written again: tensors by our key where they are the same bits.
void ForeignPackage::keep_the_rest() {
  Json& foreign = result_.checkpoint.meta["foreign"];
  foreign["from"] = source_.from;
  foreign["file"] = std::filesystem::path(source_.path).filename().string();
  foreign["tree"] =
      pickle_to_json(source_.file.root(), [&](const PickleTensor& tensor, const std::string& at) -> Json {
        const at::Tensor theirs = to_tensor(tensor, source_.file.mapping(), at);
        const auto known = places_.find(at);
        std::string key = known == places_.end() ? "" : known->second;
        if (!key.empty()) {
          const at::Tensor back = tensors().at(key).reshape(theirs.sizes()).to(theirs.scalar_type());
          if (!same_bits(back, theirs)) key.clear();
        }
        if (key.empty()) {
          key = "foreign." + at;
          tensors()[key] = theirs;
        }
        return {{"$tensor", key}, {"shape", tensor.shape}, {"type", tensor.element}};
      });
}

ImportedCheckpoint ForeignPackage::finish(Recipe& recipe, const Json& parameters, bool complete) {
  if (step_ == 0) step_ = step_from_name();
  tensors()["trainer.step"] = at::scalar_tensor(step_, at::kLong);
  for (const char* name :
       {"trainer.batches", "trainer.salt", "health.bad_in_a_row", "health.bad_total", "health.rollbacks"})
    tensors()[name] = at::scalar_tensor(0, at::kLong);
  keep_the_rest();
  result_.complete = complete;
  Json& meta = result_.checkpoint.meta;
  meta["step"] = step_;
  meta["task"] = result_.kind;
  meta["version"] = version();
  meta["healthy"] = true;
  meta["parameters"] = parameters;
  meta["config"] = recipe.schema().json();
  return std::move(result_);
}

}  // namespace melete
