// Whole training steps of SoundStreamTrainer, replayed on the one loop with every wave and every draw that
// was recorded.
#include "core/base/error.h"
#include "golden.h"
#include "systems/soundstream/foreign_names.h"
#include "systems/soundstream/task.h"
#include "train/trainer.h"

namespace melete::golden::cases_soundstream_trainer {

namespace {

class RecordedBatches : public BatchSource {
 public:
  explicit RecordedBatches(std::vector<at::Tensor> waves) : waves_(std::move(waves)) {}
  Batch batch(int64_t number) override {
    Batch batch;
    batch.set("wave", waves_.at(static_cast<size_t>(number)));
    batch.number = number;
    return batch;
  }

 private:
  std::vector<at::Tensor> waves_;
};

// One of PyTorch's schedulers as our curve of the same rates.
void set_scheduler(ScheduleConfig& schedule, const nlohmann::ordered_json& given, const std::string& prefix) {
  const auto name = given.value(prefix + "scheduler", nlohmann::ordered_json());
  if (name.is_null()) return;
  const auto how = given.value(prefix + "scheduler_kwargs", nlohmann::ordered_json::object());
  const auto kind = name.get<std::string>();
  schedule.minimum = how.value("eta_min", 0.0);
  if (kind == "StepLR") {
    schedule.kind = "step";
    schedule.step_size = how.at("step_size").get<int64_t>();
    schedule.gamma = how.value("gamma", 0.1);
  } else if (kind == "ExponentialLR") {
    schedule.kind = "exponential";
    schedule.gamma = how.at("gamma").get<double>();
  } else if (kind == "CosineAnnealingLR") {
    schedule.kind = "cosine";
    schedule.decay_steps = how.at("T_max").get<int64_t>();
  } else if (kind == "CosineAnnealingWarmRestarts") {
    schedule.kind = "cosine_restarts";
    schedule.period = how.at("T_0").get<int64_t>();
    schedule.period_growth = how.value("T_mult", int64_t{1});
  } else if (kind == "MultiStepLR") {
    schedule.kind = "multi_step";
    schedule.milestones = how.at("milestones").get<std::vector<int64_t>>();
    schedule.gamma = how.value("gamma", 0.1);
  } else if (kind == "PolynomialLR") {
    schedule.kind = "polynomial";
    schedule.decay_steps = how.value("total_iters", int64_t{5});
    schedule.power = how.value("power", 1.0);
  } else {
    fail("[golden] no curve here is that of {}", kind);
  }
}

SoundStreamTaskConfig task_config(const nlohmann::ordered_json& config) {
  const auto& given = config.at("trainer");
  expect_only_trainer(
      given, {"num_train_steps", "grad_accum_every", "lr", "wd", "warmup_steps", "discr_warmup_steps",
              "scheduler", "scheduler_kwargs", "discr_scheduler", "discr_scheduler_kwargs", "max_grad_norm",
              "discr_max_grad_norm", "log_losses_every", "use_ema", "ema_beta", "ema_update_after_step",
              "ema_update_every", "apply_grad_penalty_every"});
  SoundStreamTaskConfig task;
  task.own_discriminator_batches = true;
  task.model = audiolm_pytorch::soundstream_config(config.at("soundstream"),
                                                   config.value("msd_kwargs", nlohmann::ordered_json()));
  const auto number = [&](const char* name, double otherwise) {
    return given.contains(name) && !given[name].is_null() ? given[name].get<double>() : otherwise;
  };
  for (PhaseConfig* phase : {&task.generator, &task.discriminator}) {
    phase->optimiser.learning_rate = number("lr", 2e-4);
    phase->optimiser.weight_decay = number("wd", 0);
    phase->schedule.upstream_warmup = true;
    phase->schedule.warmup_steps = static_cast<int64_t>(number("warmup_steps", 1000));
  }
  task.discriminator.schedule.warmup_steps = static_cast<int64_t>(
      number("discr_warmup_steps", static_cast<double>(task.generator.schedule.warmup_steps)));
  set_scheduler(task.generator.schedule, given, "");
  set_scheduler(task.discriminator.schedule, given, "discr_");
  task.generator.clip_norm =
      given.contains("max_grad_norm") && given["max_grad_norm"].is_null() ? 0 : number("max_grad_norm", 0.5);
  task.discriminator.clip_norm = number("discr_max_grad_norm", 0);
  task.gradient_penalty_every = static_cast<int64_t>(number("apply_grad_penalty_every", 4));
  return task;
}

TrainerConfig trainer_config(const nlohmann::ordered_json& given) {
  TrainerConfig config;
  config.steps = given.at("num_train_steps").get<int64_t>();
  config.accumulate = given.value("grad_accum_every", 4);
  config.ema.enabled = given.value("use_ema", true);
  config.ema.beta = given.value("ema_beta", 0.995);
  config.ema.update_after_step = given.value("ema_update_after_step", 500);
  config.ema.update_every = given.value("ema_update_every", 10);
  return config;
}

std::string their_name(const std::string& ours) {
  static const std::map<std::string, std::string> names = {
      {"generator.loss", "loss"},           {"reconstruction", "recon_loss"},
      {"mel", "multi_spectral_recon_loss"}, {"adversarial", "adversarial_loss"},
      {"feature", "feature_loss"},          {"commitment", "all_commitment_loss"}};
  const auto found = names.find(ours);
  if (found != names.end()) return found->second;
  const std::string tail = "_gradient_penalty";
  if (!ours.ends_with(tail)) return ours;
  const std::string base = ours.substr(0, ours.size() - tail.size());
  const auto colon = base.find(':');
  return colon == std::string::npos ? base + "_grad_penalty" : "scale_grad_penalty" + base.substr(colon);
}

struct Call {
  std::string name;  // "call.03"
  bool trains;       // others made samples
};

std::vector<Call> recorded_calls(const Case& c) {
  std::vector<Call> calls;
  for (const auto& [key, about] : c.json.at("inputs").items())
    calls.push_back({key.substr(3, key.size() - 3 - std::string(".wave").size()),
                     about.value("doc", "").find("training=True") != std::string::npos});
  return calls;
}

// A sample that was made with a fresh codebook placed it.
void make_sample(const Case& c, const std::string& call, SoundStreamGan& gan) {
  const at::NoGradGuard no_grad;
  ReplayDraws draws(c, "rand." + call + ".");
  gan->eval();
  gan->codec->forward(gan->codec->prepare(c.in(call + ".wave")), &draws);
  gan->train();
}

void check_trainer(const Case& c, Checker& check) {
  const auto& given = c.config.at("trainer");
  SoundStreamTask task(task_config(c.config), {});
  audiolm_pytorch::load_soundstream(task.gan(), c.weights);

  const std::vector<Call> all = recorded_calls(c);
  std::vector<std::string> calls;
  std::vector<at::Tensor> waves;
  for (const Call& call : all)
    if (call.trains) {
      calls.push_back(call.name);
      waves.push_back(c.in(call.name + ".wave"));
    }
  RecordedBatches batches(waves);
  const TrainerConfig config = trainer_config(given);
  Trainer trainer({task, batches}, config);
  trainer.set_draws([&](const StepContext& context, int64_t phase) -> std::unique_ptr<Draws> {
    const int64_t call = (context.step * 2 + phase) * config.accumulate + context.micro_batch;
    return std::make_unique<ReplayDraws>(c, "rand." + calls.at(static_cast<size_t>(call)) + ".");
  });

  const auto scalar = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  size_t next = 0;
  for (int64_t step = 0; step < config.steps; ++step) {
    const StepReport report = trainer.step();
    const std::string prefix = fmt::format("step.{}.", step);
    for (const auto& [name, value] : report.losses) {
      const std::string theirs = prefix + their_name(name);
      if (c.has("out." + theirs)) check.close(theirs, scalar(value), c.out(theirs));
    }
    if (c.has("out." + prefix + "grad_norm.0"))
      check.close(prefix + "grad_norm.0", scalar(report.gradient_norms.front().second),
                  c.out(prefix + "grad_norm.0"));
    const at::Tensor rates =
        at::tensor({report.learning_rates[0].second, report.learning_rates[1].second}, at::kDouble);
    check.close(prefix + "lr", rates, c.out(prefix + "lr"), 1e-6);
    for (int64_t trained = 0; next < all.size(); ++next) {
      if (all[next].trains && trained++ == 2 * config.accumulate) break;
      if (!all[next].trains) make_sample(c, all[next].name, task.gan());
    }
  }
  for (const auto& pair : audiolm_pytorch::soundstream_pairs(*task.gan(), "", task.gan()->config())) {
    if (const std::string key = "post.model." + pair.theirs; c.has(key))
      check.close(key, pair.tensor, c.get(key).reshape(pair.tensor.sizes()));
    if (const std::string key = "post.ema." + pair.theirs; c.has(key))
      check.close(key, trainer.ema()->average(pair.ours), c.get(key).reshape(pair.tensor.sizes()));
  }
}

const bool registered = register_case("audiolm", "SoundStreamTrainer", check_trainer);

}  // namespace

}  // namespace melete::golden::cases_soundstream_trainer
