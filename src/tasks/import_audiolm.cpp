#include "tasks/import_audiolm.h"

#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "core/base/error.h"
#include "core/base/version.h"
#include "interop/audiolm_pytorch_files.h"
#include "io/base/mapped_file.h"
#include "io/base/pickle_json.h"
#include "io/pickled_tensors.h"
#include "tasks/recipe.h"
#include "tasks/soundstream_task.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

struct Source {
  std::string path;
  const TorchFile& file;
  const PickleValue* state;  // the model's state_dict
  bool package;              // a dict around it, with settings and perhaps optimisers
};

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

Json constructor_arguments(const Source& source) {
  const PickleValue* config = source.package ? source.file.root().find("config") : nullptr;
  if (!config) return nullptr;
  const std::string where = source.path + ": config";
  const auto refuse = [&](const PickleTensor&, const std::string& name) -> Json {
    fail("[{}] a tensor among the settings ({})", where, name);
  };
  if (!config->is(PickleValue::Kind::bytes)) return without_tags(pickle_to_json(*config, refuse));
  const PickleTree tree = unpickle(std::as_bytes(std::span(*config->text())), where);
  return without_tags(pickle_to_json(tree.root(), refuse));
}

// Our key of every tensor of the package, by its place there.
using Places = std::map<std::string, std::string>;

class SoundStreamImport {
 public:
  explicit SoundStreamImport(const Source& source) : source_(source) {
    state_ = tensors_below(*source.state, source.file.mapping());
    config_.model =
        audiolm_pytorch::soundstream_config_of_file(constructor_arguments(source), state_, result_.notes);
    gan_ = SoundStreamGan(config_.model);
    audiolm_pytorch::load_soundstream(gan_, state_);
    pairs_ = audiolm_pytorch::soundstream_pairs(*gan_, "", config_.model);
  }

  ImportedCheckpoint run() {
    result_.kind = "soundstream";
    const std::string prefix = source_.package ? "model." : "";
    for (const auto& pair : pairs_) {
      tensors()["model." + pair.ours] = pair.tensor.detach();
      places_[prefix + pair.theirs] = "model." + pair.ours;
    }
    recipe_ = make_recipe("soundstream");
    config_.own_discriminator_batches = true;
    read_average();
    read_optimisers();
    if (step_ == 0) step_ = step_from_name();
    counters();
    keep_the_rest();
    describe();
    return std::move(result_);
  }

 private:
  TensorMap& tensors() { return result_.checkpoint.tensors; }
  const PickleValue* part(const std::string& name) const {
    return source_.package ? source_.file.root().find(name) : nullptr;
  }

  void read_average() {
    const PickleValue* average = part("ema_model");
    has_average_ = average != nullptr;
    if (!average) return;
    const TensorMap state = tensors_below(*average, source_.file.mapping());
    const auto read = [&](const std::string& name) -> const at::Tensor& {
      const auto found = state.find(name);
      require(found != state.end(), "[{}] its ema_model lacks `{}`", source_.path, name);
      return found->second;
    };
    for (const auto& pair : pairs_) {
      const at::Tensor& averaged = read("ema_model." + pair.theirs);
      require(averaged.numel() == pair.tensor.numel(), "[{}] `ema_model.{}` has another shape than the model",
              source_.path, pair.theirs);
      if (!pair.tensor.is_floating_point()) continue;
      tensors()["ema.average." + pair.ours] = averaged.reshape(pair.tensor.sizes());
      places_["ema_model.ema_model." + pair.theirs] = "ema.average." + pair.ours;
      places_["ema_model.online_model." + pair.theirs] = "model." + pair.ours;
    }
    tensors()["ema.step"] = read("step").reshape({}).to(at::kLong);
    tensors()["ema.started"] = read("initted").reshape({}).to(at::kLong);
    places_["ema_model.step"] = "ema.step";
    places_["ema_model.initted"] = "ema.started";
  }

  // Names of parameters (not buffers) in the order of the state_dict.
  std::vector<std::string> parameter_names() {
    std::map<std::string, at::Tensor> ours;
    std::set<std::string> parameters;
    for (const auto& item : gan_->named_parameters()) parameters.insert(item.key());
    std::set<std::string> theirs;
    for (const auto& pair : pairs_)
      if (parameters.count(pair.ours)) theirs.insert(pair.theirs);
    std::vector<std::string> names;
    for (const auto& [key, value] : source_.state->dict()->entries)
      if (key->text() && theirs.count(*key->text())) names.push_back(*key->text());
    return names;
  }

  void read_optimisers() {
    const std::vector<std::string> names = parameter_names();
    const auto below = [&](const std::string& prefix) {
      std::vector<std::string> some;
      for (const std::string& name : names)
        if (name.starts_with(prefix)) some.push_back(name);
      return some;
    };
    bool all =
        read_optimiser("optim", "generator", audiolm_pytorch::generator_order(names), &config_.generator);
    all = read_optimiser("discr_optim", "discriminator", below("stft_discriminator."),
                         &config_.discriminator) &&
          all;
    for (size_t i = 0; i < config_.model.discriminator_scales.size(); ++i)
      all = read_optimiser(fmt::format("multiscale_discr_optimizer_{}", i), "discriminator",
                           below(fmt::format("discriminators.{}.", i)), nullptr) &&
            all;
    result_.complete = all && has_average_;
  }

  bool read_optimiser(const std::string& key, const std::string& phase, std::vector<std::string> order,
                      PhaseConfig* settings) {
    const PickleValue* whole = part(key);
    const PickleValue* inner = whole ? whole->find("optimizer") : nullptr;
    const PickleValue* state = inner ? inner->find("state") : nullptr;
    const PickleValue* groups = inner ? inner->find("param_groups") : nullptr;
    if (!state || !groups || !groups->items() || groups->items()->empty()) return false;
    if (groups->items()->size() == 2) {  // with weight decay: matrices first, then the rest
      std::stable_partition(order.begin(), order.end(),
                            [&](const std::string& name) { return state_.at(name).dim() >= 2; });
    }
    const std::string where = source_.path + ": " + key;
    std::map<std::string, std::string> ours;
    for (const auto& pair : pairs_) ours[pair.theirs] = pair.ours;
    size_t parameters = 0;
    for (const PickleValue* group : *groups->items())
      if (const PickleValue* list = group->find("params"))
        if (list->items()) parameters += list->items()->size();
    require(parameters == order.size(), "[{}] an optimiser of {} parameters, the model has {} there", where,
            parameters, order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const PickleValue* moments = state->find(static_cast<int64_t>(i));
      if (!moments) continue;  // never had a gradient
      const std::string name = fmt::format("optimiser.{}.{}", phase, ours.at(order[i]));
      const std::string place = fmt::format("{}.optimizer.state.{}", key, i);
      const auto read = [&](const char* what) {
        const PickleTensor* tensor = moments->at(what, where).tensor();
        require(tensor != nullptr, "[{}] `{}` of parameter {} is no tensor", where, what, i);
        at::Tensor made = to_tensor(*tensor, source_.file.mapping(), place);
        require(made.sizes() == state_.at(order[i]).sizes(),
                "[{}] `{}` of parameter {} does not have the shape of `{}`", where, what, i, order[i]);
        return made.reshape(state_.at(order[i]).sizes());
      };
      tensors()[name + ".first"] = read("exp_avg");
      tensors()[name + ".second"] = read("exp_avg_sq");
      const PickleValue& step = moments->at("step", where);
      const int64_t steps = step.tensor()
                                ? to_tensor(*step.tensor(), source_.file.mapping(), place).item().toLong()
                                : step.integer().value_or(0);
      tensors()[name + ".step"] = at::scalar_tensor(steps, at::kLong);
      step_ = std::max(step_, steps);
      places_[place + ".exp_avg"] = name + ".first";
      places_[place + ".exp_avg_sq"] = name + ".second";
      places_[place + ".step"] = name + ".step";
    }
    if (settings) read_settings(*whole, *groups->items()->front(), *settings);
    return true;
  }

  // What is written of the learning rate: its value now, or before schedulers touched it.
  void read_settings(const PickleValue& whole, const PickleValue& group, PhaseConfig& settings) {
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

  int64_t step_from_name() const {
    std::smatch match;
    const std::string stem = std::filesystem::path(source_.path).stem().string();
    return std::regex_search(stem, match, std::regex(R"(\.(\d{1,12})$)")) ? std::stoll(match.str(1)) + 1 : 0;
  }

  void counters() {
    tensors()["trainer.step"] = at::scalar_tensor(step_, at::kLong);
    for (const char* name :
         {"trainer.batches", "trainer.salt", "health.bad_in_a_row", "health.bad_total", "health.rollbacks"})
      tensors()[name] = at::scalar_tensor(0, at::kLong);
  }

  // The package's tree, so that it can be written again: tensors by our key where they are the same bits.
  void keep_the_rest() {
    Json& foreign = result_.checkpoint.meta["foreign"];
    foreign["from"] = "audiolm-pytorch";
    foreign["file"] = std::filesystem::path(source_.path).filename().string();
    foreign["tree"] = pickle_to_json(
        source_.file.root(), [&](const PickleTensor& tensor, const std::string& place) -> Json {
          const at::Tensor theirs = to_tensor(tensor, source_.file.mapping(), place);
          const auto known = places_.find(place);
          std::string key = known == places_.end() ? "" : known->second;
          if (!key.empty()) {
            const at::Tensor back = tensors().at(key).reshape(theirs.sizes()).to(theirs.scalar_type());
            if (!same_bits(back, theirs)) key.clear();
          }
          if (key.empty()) {
            key = "foreign." + place;
            tensors()[key] = theirs;
          }
          return {{"$tensor", key}, {"shape", tensor.shape}, {"type", tensor.element}};
        });
  }

  static bool same_bits(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor left = a.contiguous(), right = b.contiguous();
    return std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
  }

  void describe() {
    if (!result_.complete)
      result_.notes.push_back("the file has no optimisers or no average: training starts them anew");
    recipe_->train.ema.enabled = has_average_;
    for (PhaseConfig* phase : {&config_.generator, &config_.discriminator})
      phase->schedule.upstream_warmup = false;
    Schema schema = recipe_->schema();
    SoundStreamTaskConfig own = config_;
    schema.apply(schema_of(own).json());
    recipe_->settle();
    Json& meta = result_.checkpoint.meta;
    int64_t codec = 0, discriminators = 0;
    for (const auto& item : gan_->named_parameters())
      (item.key().starts_with("codec.") ? codec : discriminators) += item.value().numel();
    meta["step"] = step_;
    meta["task"] = "soundstream";
    meta["version"] = version();
    meta["healthy"] = true;
    meta["parameters"] = {
        {"generator", codec}, {"discriminator", discriminators}, {"total", codec + discriminators}};
    meta["config"] = recipe_->schema().json();
  }

  Source source_;
  ImportedCheckpoint result_;
  TensorMap state_;
  SoundStreamTaskConfig config_;
  SoundStreamGan gan_{nullptr};
  std::vector<audiolm_pytorch::NamedPair> pairs_;
  std::unique_ptr<Recipe> recipe_;
  Places places_;
  int64_t step_ = 0;
  bool has_average_ = false;
};

struct Kind {
  const char* name;
  const char* mark;  // a weight that only this kind of model has
  std::function<ImportedCheckpoint(const Source&)> import;
};

// A further kind of model is a row here.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> table = {
      {"soundstream", "encoder.0.conv.weight",
       [](const Source& source) { return SoundStreamImport(source).run(); }},
  };
  return table;
}

}  // namespace

ImportedCheckpoint import_audiolm_pytorch(const std::string& path) {
  const at::NoGradGuard no_grad;
  const TorchFile file(path);
  require(file.root().is(PickleValue::Kind::dict), "[{}] expected a dict of weights, got a {}", path,
          file.root().kind_name());
  const PickleValue* model = file.root().find("model");
  const bool package = model != nullptr && model->is(PickleValue::Kind::dict);
  const Source source{path, file, package ? model : &file.root(), package};
  std::string known;
  for (const Kind& kind : kinds()) {
    if (source.state->find(kind.mark)) return kind.import(source);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  std::string first = "nothing";
  if (!source.state->dict()->entries.empty())
    if (const std::string* text = source.state->dict()->entries.front().first->text())
      first = "`" + printable(*text) + "`";
  fail(
      "[{}] not a model that melete can import (it begins with {}); known of audiolm-pytorch: {}. `melete "
      "inspect` shows what is in it",
      path, first, known);
}

}  // namespace melete
