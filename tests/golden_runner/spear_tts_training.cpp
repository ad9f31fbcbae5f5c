// SPEAR-TTS's three trainers: their steps, their learning rates, and what each of them trains.
#include "core/base/error.h"
#include "spear_tts.h"
#include "systems/spear_tts/training.h"
#include "train/optimiser.h"
#include "train/scopes.h"

namespace melete::golden::spear_tts_training_cases {

using namespace spear_tts;
using nlohmann::ordered_json;

namespace {

at::Tensor scalar(double value) {
  return at::scalar_tensor(value, at::kDouble);
}

const std::map<std::string, Direction> kTrainers = {{"SpeechSpeechPretrainer", kSpeechToSpeech},
                                                    {"SemanticToTextTrainer", kSpeechToText},
                                                    {"TextToSemanticTrainer", kTextToSpeech}};

constexpr int64_t kFrozenLayers = 2;  // of the encoder, unless a trainer is told another number

// One trainer with its recorded batches.
class Replay {
 public:
  Replay(const Case& c, Checker& check)
      : case_(c),
        check_(check),
        given_(c.config.at("trainer")),
        direction_(kTrainers.at(c.kind)),
        spear_(spear_model(c, c.config.at("model"))),
        deletion_(foreign_deletion(given_)) {}

  void run();

 private:
  // What a batch, "s0_a0" or "valid1", costs.
  at::Tensor loss(const std::string& name, bool training);

  const Case& case_;
  Checker& check_;
  const ordered_json& given_;
  Direction direction_;
  SpearModel spear_;
  DeletionConfig deletion_;
};

at::Tensor Replay::loss(const std::string& name, bool training) {
  SpearDraws draws(case_, "rand." + name + ".");
  LossPass pass;
  // Theirs tosses the coin in validation, too.
  pass.condition_drop = spear_.settings.model.condition_drop;
  pass.training = training && draws.has_dropout();
  pass.draws = &draws;
  pass.early_exit = direction_ == kTextToSpeech && spear_.model->has_early_exit() &&
                    value_or(given_, "should_train_early_exit_layer_if_available", true);
  Pair pair{case_.in(name + ".source"), case_.in(name + ".target"), direction_, {}, {}};
  if (case_.has("in." + name + ".x")) {
    const Damaged damaged = damage(case_.in(name + ".x"), *spear_.model->speech, deletion_, draws);
    if (case_.has("out." + name + ".delete_mask"))
      check_.close(name + ".delete_mask", damaged.deleted, case_.out(name + ".delete_mask"));
    check_.close(name + ".source", damaged.source, pair.source);
    check_.close(name + ".target", damaged.target, pair.target);
    pair.source = damaged.source;
    pair.target = damaged.target;
  }
  const at::Tensor total = pair_losses(spear_.model, pair, spear_.settings.loss, pass).total;
  check_.close(name + ".loss", total, case_.out(name + ".loss"));
  return total;
}

void Replay::run() {
  expect_only_trainer(given_,
                      {"num_train_steps", "num_warmup_steps", "lr", "initial_lr", "wd", "max_grad_norm",
                       "grad_accum_every", "log_every", "deletion_prob", "reconstruct_seq", "mask_id",
                       "freeze_encoder_layers_below", "should_train_early_exit_layer_if_available",
                       "dataset_delimiter_id", "generated_audio_text_dataset_folder", "dataset", "wav2vec"});
  const double learning_rate = value_or(given_, "lr", 3e-4);
  const auto accumulate = value_or(given_, "grad_accum_every", int64_t{1});
  const auto validate_every = value_or(given_, "save_results_every", int64_t{100});
  double most = 0.5;
  if (given_.contains("max_grad_norm"))
    most = given_["max_grad_norm"].is_null() ? 0 : given_["max_grad_norm"].get<double>();
  UpstreamRates rates(learning_rate, value_or(given_, "initial_lr", 1e-5),
                      given_.at("num_warmup_steps").get<int64_t>(),
                      given_.at("num_train_steps").get<int64_t>());
  OptimiserConfig settings;
  settings.learning_rate = learning_rate;
  settings.weight_decay = value_or(given_, "wd", 0.0);
  const NamedTensors trained = trained_parameters(
      *spear_.model, direction_, value_or(given_, "freeze_encoder_layers_below", kFrozenLayers));
  std::vector<at::Tensor> wanted;
  for (const auto& [name, tensor] : trained) wanted.push_back(tensor);
  const GradientScope only_trained(*spear_.model, wanted);
  Optimiser optimiser(trained, settings);

  for (int64_t step = 0; case_.has(fmt::format("in.s{}_a0.source", step)); ++step) {
    for (int64_t i = 0; i < accumulate; ++i)
      (loss(fmt::format("s{}_a{}", step, i), true) / accumulate).backward();
    const double norm = optimiser.gradient_norm().item<double>();
    const std::string prefix = fmt::format("s{}.", step);
    if (case_.has("out." + prefix + "grad_norm_before_clip"))
      check_.close(prefix + "grad_norm_before_clip", scalar(norm),
                   case_.out(prefix + "grad_norm_before_clip"));
    const double rate = rates.rate(step);
    if (case_.has("out." + prefix + "lr")) {
      const at::Tensor used = case_.out(prefix + "lr");
      check_.close(prefix + "lr", scalar(rate / learning_rate).expand_as(used), used / learning_rate);
    }
    optimiser.step(rate, clip_scale(norm, most));
    optimiser.clear_gradients();
    const std::string validation = fmt::format("valid{}", step / validate_every);
    if (step % validate_every == 0 && case_.has("in." + validation + ".source")) {
      const at::NoGradGuard no_grad;
      loss(validation, false);
    }
  }
  for (const auto& [name, tensor] : state_dict(*spear_.model))
    if (case_.has("out.final." + name)) check_.close("final." + name, tensor, case_.out("final." + name));
}

void check_trainer(const Case& c, Checker& check) {
  expect_only(c.config, {"model", "trainer"});
  Replay(c, check).run();
}

void check_learning_rates(const Case& c, Checker& check) {
  for (const auto& [name, sequence] : c.json.at("sequences").items()) {
    const ordered_json& settings = sequence.at("settings");
    expect_only(settings, {"num_warmup_steps", "num_train_steps", "lr", "initial_lr"});
    const double rate = value_or(settings, "lr", 3e-4);
    UpstreamRates rates(rate, value_or(settings, "initial_lr", 1e-5), settings.at("num_warmup_steps"),
                        settings.at("num_train_steps"));
    const auto wanted = sequence.at("lr_used_by_each_optimizer_step").get<std::vector<double>>();
    std::vector<double> got;
    for (size_t step = 0; step < wanted.size(); ++step) got.push_back(rates.rate(static_cast<int64_t>(step)));
    check.close(name, at::tensor(got, at::kDouble) / rate, at::tensor(wanted, at::kDouble) / rate);
  }
}

void check_names(Checker& check, const std::string& label, const std::vector<std::string>& got,
                 const ordered_json& wanted) {
  const auto names = wanted.get<std::vector<std::string>>();
  check.close(label, at::scalar_tensor(got == names ? 1 : 0, at::kLong), at::scalar_tensor(1, at::kLong));
  for (size_t i = 0; i < std::min(names.size(), got.size()); ++i)
    if (got[i] != names[i]) return check.fail(fmt::format("{}: {} where {} is", label, got[i], names[i]));
}

// Their trainers unfreeze rotations and tokenizers by accident. Ours never train either; what theirs train is
// only known for their files.
void check_trained_parameters(const Case& c, Checker& check) {
  TextToSemantic model(foreign_settings(c.config).model);
  const int64_t frozen = value_or(c.json, "freeze_encoder_layers_below", kFrozenLayers);
  std::map<std::string, std::string> ours;
  for (const ForeignTensor& own : foreign_tensors(*model)) ours[own.theirs.front()] = own.ours;
  for (const auto& [trainer, lists] : c.json.at("trainers").items()) {
    if (trainer.ends_with("(model holds a wav2vec)")) continue;
    const auto found = kTrainers.find(trainer);
    require(found != kTrainers.end(), "[golden] no trainer is called {}", trainer);
    const ForeignParameters theirs = foreign_parameters(*model, found->second, frozen);
    check_names(check, trainer + ".requires_grad", theirs.trained, lists.at("requires_grad"));
    check_names(check, trainer + ".frozen", theirs.frozen, lists.at("frozen"));
    check.close(trainer + ".number_of_parameters_in_optimizer",
                at::scalar_tensor(static_cast<int64_t>(theirs.in_optimiser.size()), at::kLong),
                at::scalar_tensor(lists.at("number_of_parameters_in_optimizer").get<int64_t>(), at::kLong));
    std::set<std::string> wanted, got;
    for (const std::string& name : theirs.trained)
      if (!name.ends_with("rotary_emb.freqs")) wanted.insert(ours.at(name));
    for (const auto& [name, tensor] : trained_parameters(*model, found->second, frozen)) got.insert(name);
    if (got != wanted) check.fail(trainer + ": what is trained here is not what their names say");
  }
}

const bool registered = register_case("spear-tts", "SpeechSpeechPretrainer", check_trainer) &&
                        register_case("spear-tts", "SemanticToTextTrainer", check_trainer) &&
                        register_case("spear-tts", "TextToSemanticTrainer", check_trainer) &&
                        register_case("spear-tts", "lr_schedule", check_learning_rates) &&
                        register_case("spear-tts", "requires_grad_per_trainer", check_trained_parameters);

}  // namespace

}  // namespace melete::golden::spear_tts_training_cases
