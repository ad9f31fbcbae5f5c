// muse-maskgit-pytorch's files: VQGanVAETrainer.save's package, the bare weights and the average that it
// leaves beside them (vae.N.pt, vae.N.ema.pt), and the state of a MaskGit with its autoencoders in it.
#include <cmath>
#include <fstream>

#include "core/base/error.h"
#include "io/base/pickle_json.h"
#include "systems/muse/foreign_files.h"
#include "systems/muse/foreign_names.h"
#include "systems/muse/picture_tokenizer.h"
#include "systems/muse/system.h"
#include "systems/muse/task_vqgan.h"
#include "systems/muse/texted_maskgit.h"

namespace melete {

namespace {

namespace foreign = muse_maskgit_pytorch;
using Json = nlohmann::ordered_json;

// As ForeignPackage knows them.
std::vector<NamedPair> plain_pairs(const std::vector<foreign::NamedPair>& pairs, const std::string& ours,
                                   const std::string& theirs) {
  std::vector<NamedPair> plain;
  for (const foreign::NamedPair& pair : pairs)
    if (pair.form != foreign::NamedPair::Form::presence)
      plain.push_back({ours + pair.ours, theirs + pair.theirs, pair.tensor});
  return plain;
}

// What a person says about the file and not about the model.
Json without(Json given, std::initializer_list<const char*> names) {
  if (!given.is_object()) return Json::object();
  for (const char* name : names) given.erase(name);
  return given;
}

int64_t parameter_count(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& weight : module.parameters()) count += weight.numel();
  return count;
}

// {"optim": [names in the order of its states], "discr_optim": [...]}: as it is given, itself or in a JSON
// file, or as the package has it.
Json optimiser_orders(const Json& given, const PickleValue* in_package) {
  const char* const kName = foreign::kOptimiserOrder;
  Json orders = given.is_object() ? given.value(kName, Json::object()) : Json::object();
  if (orders.empty() && in_package != nullptr)
    return pickle_to_json(*in_package, [&](const PickleTensor&, const std::string& place) -> Json {
      fail("[{}] a tensor among names ({})", kName, place);
    });
  if (!orders.is_string()) return orders;
  const std::string path = orders.get<std::string>();
  std::ifstream file(path);
  require(file.good(), "[{}] cannot read {}", kName, path);
  orders = Json::parse(file, nullptr, false);
  require(orders.is_object(), "[{}] {} is no JSON object", kName, path);
  return orders.contains(kName) ? orders[kName] : orders;
}

class VqganImport {
 public:
  // prefix: where the weights stand in the file ("online_model.", "vae.").
  VqganImport(const PackageSource& source, const std::string& prefix)
      : package_(source, kVqganTask), prefix_(prefix) {
    state_ = foreign::part_of(package_.state(), prefix);
    const Json given = without(package_.given(), {"optimizer_parameter_order", "take"});
    config_.model =
        foreign::vqgan_config(foreign::with_given(foreign::vqgan_arguments(state_), given, package_.path()));
    config_.own_discriminator_batches = true;
    gan_ = muse::Vqgan(config_.model);
    foreign::load(foreign::vqgan_pairs(*gan_), state_);
  }

  ImportedCheckpoint run() {
    package_.take_weights(plain_pairs(foreign::vqgan_pairs(*gan_), "", prefix_));
    const bool average = read_average(), optimisers = read_optimisers();
    if (!average) package_.notes().push_back("the file has no average: training starts one anew");
    const std::unique_ptr<Recipe> recipe = make_vqgan_recipe();
    recipe->train.ema.enabled = average;
    Schema schema = recipe->schema();
    muse::VqganTaskConfig own = config_;
    schema.apply(schema_of(own).json());
    const int64_t vae = parameter_count(*gan_->vae), all = parameter_count(*gan_);
    return package_.finish(*recipe, {{"generator", vae}, {"discriminator", all - vae}, {"total", all}},
                           optimisers);
  }

 private:
  // From the file that is one, or from where a package of ours has it.
  bool read_average() {
    const PickleValue* inside = package_.part(foreign::kAverage);
    if (prefix_ != "online_model." && inside == nullptr) return false;
    const TensorMap whole = inside ? package_.tensors_of(*inside) : package_.state();
    const std::string at = inside ? std::string(foreign::kAverage) + "." : "";
    const TensorMap average = foreign::part_of(whole, "ema_model.");
    for (const foreign::NamedPair& pair : foreign::vqgan_pairs(*gan_)) {
      const auto found = average.find(pair.theirs);
      if (found == average.end() || !pair.tensor.is_floating_point()) continue;
      package_.tensors()["ema.average." + pair.ours] = pair.as_ours(found->second);
      package_.place(at + "ema_model." + pair.theirs, "ema.average." + pair.ours);
    }
    for (const auto& [theirs, ours] : {std::pair{"step", "ema.step"}, {"initted", "ema.started"}}) {
      const auto found = whole.find(theirs);
      require(found != whole.end(), "[{}] an average without `{}`", package_.path(), theirs);
      package_.tensors()[ours] = found->second.reshape({}).to(at::kLong);
      package_.place(at + theirs, ours);
    }
    return true;
  }

  // Upstream hands its optimisers sets of parameters: which state is whose is in no file, and differs from
  // run to run.
  bool read_optimisers() {
    if (package_.part("optim") == nullptr) return false;
    const Json orders = optimiser_orders(package_.given(), package_.part(foreign::kOptimiserOrder));
    if (orders.empty()) {
      package_.notes().push_back(
          "the file does not say whose its optimisers' states are: training starts them anew (those who know "
          "give optimizer_parameter_order=FILE.json)");
      return false;
    }
    const auto order = [&](const char* name) { return orders.at(name).get<std::vector<std::string>>(); };
    bool all = package_.read_optimiser("optim", "generator", order("optim"), &config_.generator);
    if (gan_->has_discriminator())
      all = package_.read_optimiser("discr_optim", "discriminator", order("discr_optim"),
                                    &config_.discriminator) &&
            all;
    return all;
  }

  ForeignPackage package_;
  std::string prefix_;
  TensorMap state_;
  muse::VqganTaskConfig config_;
  muse::Vqgan gan_{nullptr};
};

// transformer, token_critic: arguments of their own.
ImportedCheckpoint import_transformers(const PackageSource& source) {
  ForeignPackage package(source, kMaskGitTask);
  const TensorMap& state = package.state();
  const Json given = without(package.given(), {"take", "self_cond"});
  const bool self_condition = package.given().is_object() && package.given().value("self_cond", false);
  const auto part = [&](const char* prefix, bool critic) {
    return foreign::transformer_arguments(foreign::part_of(state, prefix), critic);
  };
  Json transformer = part("transformer.", false), critic, arguments = given;
  transformer["self_cond"] = self_condition;
  if (state.count("token_critic.token_emb.weight")) critic = part("token_critic.", true);
  if (state.count("token_critic.to_pred.weight")) arguments["self_token_critic"] = true;

  muse::TextedMaskGitConfig config;
  config.maskgit =
      foreign::maskgit_config(arguments, transformer, critic, foreign::text_dim(state, "transformer."));
  muse::TextedMaskGit model(config);
  foreign::load_maskgit(*model->maskgit, state);
  package.take_weights(plain_pairs(foreign::maskgit_pairs(*model->maskgit), "maskgit.", ""));

  const auto tokenizer = [&](const std::string& prefix) {
    const TensorMap weights = foreign::part_of(state, prefix);
    muse::VqganVae vae(foreign::vqgan_config(foreign::vqgan_arguments(weights)).vae);
    foreign::load_vae(*vae, weights);
    return muse::PictureTokenizer(vae);
  };
  const muse::PictureTokenizer pictures = tokenizer("vae.");
  const int64_t step = pictures.pixels_per_token();
  const double side = std::sqrt(static_cast<double>(config.maskgit.transformer.positions));
  const int64_t height = given.value("image_size", static_cast<int64_t>(side) * step);
  const std::unique_ptr<Recipe> recipe = make_maskgit_recipe();
  Schema schema = recipe->schema();
  muse::TextedMaskGitConfig own = config;
  Json settings = {{"model", schema_of(own).json()},
                   {"vqgan_identity", pictures.identity()},
                   {"data", {{"height", height}}}};
  package.notes().push_back(
      "its VQ-GAN is in the same file: import it with --arguments take=vae and give it as vqgan_from (train) "
      "or --vqgan (generate); its text is that of a T5: text_from, --text_encoder");
  if (given.contains("cond_image_size")) {
    settings["smaller_height"] = given["cond_image_size"];
    settings["smaller_vqgan_identity"] = tokenizer("cond_vae.").identity();
    package.notes().push_back("the one that reads smaller pictures: --arguments take=cond_vae");
  }
  schema.apply(settings);
  const int64_t all = parameter_count(*model);
  return package.finish(*recipe, {{"transformer", all}, {"total", all}}, false);
}

}  // namespace

ImportedCheckpoint import_vqgan(const PackageSource& source) {
  return VqganImport(source, "").run();
}

ImportedCheckpoint import_averaged_vqgan(const PackageSource& source) {
  return VqganImport(source, "online_model.").run();
}

ImportedCheckpoint import_maskgit(const PackageSource& source) {
  const std::string take = source.given.is_object() ? source.given.value("take", "maskgit") : "maskgit";
  if (take == "maskgit") return import_transformers(source);
  require(take == "vae" || take == "cond_vae", "[import] expected take=maskgit, vae or cond_vae, got {}",
          take);
  return VqganImport(source, take + ".").run();
}

}  // namespace melete
