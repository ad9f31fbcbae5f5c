// The trainer's way to and from checkpoints.
//   model.<name>                      parameters and buffers
//   ema.*                             the average, where there is one
//   optimiser.<phase>.<parameter>.*   moments and step
//   gradient.<phase>.<number>         gradients that outlive their step (Phase::also_in_norm)
//   task.*                            what the task keeps besides
//   trainer.*, health.*               counters
#include <torch/nn/module.h>

#include <set>

#include "core/base/error.h"
#include "core/base/version.h"
#include "dist/group_member.h"
#include "run/checkpoint.h"
#include "run/run_folder.h"
#include "train/trainer.h"

namespace melete {

namespace {

NamedTensors tensors_of(torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers())
    if (item.value().defined()) all.emplace_back(item.key(), item.value());
  return all;
}

std::string gradient_key(const std::string& phase, size_t number) {
  return fmt::format("gradient.{}.{}", phase, number);
}

int64_t counter(const TensorMap& tensors, const std::string& name, int64_t otherwise = -1) {
  const auto found = tensors.find(name);
  if (found == tensors.end() && otherwise >= 0) return otherwise;
  require(found != tensors.end(), "[trainer] the checkpoint lacks {}; it is not one of a training run", name);
  return found->second.item<int64_t>();
}

}  // namespace

Checkpoint Trainer::checkpoint() const {
  Checkpoint out;
  TensorMap& tensors = out.tensors;
  torch::nn::Module& model = parts_.task.model();
  for (const auto& [name, tensor] : tensors_of(model)) tensors["model." + name] = tensor.detach();
  if (ema_) ema_->state(tensors, "ema.");
  nlohmann::ordered_json counts;
  for (const RunningPhase& running : phases_) {
    for (const Optimiser& optimiser : running.optimisers)
      optimiser.state(tensors, "optimiser." + running.phase.name + ".");
    for (size_t i = 0; i < running.phase.also_in_norm.size(); ++i)
      if (const at::Tensor& gradient = running.phase.also_in_norm[i].grad(); gradient.defined())
        tensors[gradient_key(running.phase.name, i)] = gradient.detach();
    int64_t count = 0;
    for (const at::Tensor& parameter : running.parameters) count += parameter.numel();
    counts[running.phase.name] = count;
  }
  TensorMap own;
  parts_.task.save_state(own);
  for (const auto& [name, tensor] : own) tensors["task." + name] = tensor;
  health_.state(tensors, "health.");
  loss_scale_.state(tensors, "loss_scale.");
  tensors["trainer.step"] = at::scalar_tensor(step_, at::kLong);
  tensors["trainer.batches"] = at::scalar_tensor(batches_taken_, at::kLong);
  tensors["trainer.origin"] = at::scalar_tensor(origin_, at::kLong);
  tensors["trainer.batch_items"] = at::scalar_tensor(parts_.training.items_per_batch(), at::kLong);
  tensors["trainer.salt"] = at::scalar_tensor(salt_, at::kLong);

  int64_t total = 0;
  for (const at::Tensor& parameter : model.parameters()) total += parameter.numel();
  counts["total"] = total;
  out.meta["step"] = step_;
  out.meta["ranks"] = group_->size();
  out.meta["task"] = parts_.task.name();
  out.meta["version"] = version();
  out.meta["healthy"] = !health_.in_bad_streak();
  out.meta["parameters"] = counts;
  out.meta["config"] = parts_.config.is_null() ? parts_.task.config() : parts_.config;
  return out;
}

void Trainer::restore(const TensorMap& tensors) {
  at::NoGradGuard no_gradient;
  std::set<std::string> wanted;
  for (auto& [name, tensor] : tensors_of(parts_.task.model())) {
    const std::string key = "model." + name;
    wanted.insert(key);
    const auto found = tensors.find(key);
    require(found != tensors.end(), "[trainer] the checkpoint lacks {}; was the model set up differently?",
            key);
    require(found->second.sizes() == tensor.sizes(),
            "[trainer] {} has another shape in the checkpoint; was the model set up differently?", key);
    tensor.detach().copy_(found->second);
  }
  TensorMap own;
  for (const auto& [key, tensor] : tensors) {
    require(key.rfind("model.", 0) != 0 || wanted.count(key) > 0,
            "[trainer] the checkpoint has {}, which this model has not; was the model set up differently?",
            key);
    if (key.rfind("task.", 0) == 0) own[key.substr(5)] = tensor;
  }
  parts_.task.load_state(own);
  if (ema_) ema_->load(tensors, "ema.");
  for (RunningPhase& running : phases_) {
    for (Optimiser& optimiser : running.optimisers) {
      optimiser.load(tensors, "optimiser." + running.phase.name + ".");
      optimiser.clear_gradients();
    }
  }
  for (RunningPhase& running : phases_)
    for (size_t i = 0; i < running.phase.also_in_norm.size(); ++i) {
      at::Tensor& tensor = running.phase.also_in_norm[i];
      const auto found = tensors.find(gradient_key(running.phase.name, i));
      if (found == tensors.end())
        tensor.mutable_grad().reset();
      else
        tensor.mutable_grad() =
            at::empty_like(tensor, tensor.options().requires_grad(false)).copy_(found->second);
    }
}

void Trainer::load(const Checkpoint& checkpoint) {
  const std::string task = checkpoint.meta.value("task", "");
  require(task == parts_.task.name(), "[trainer] expected a checkpoint of {}, got one of {}",
          parts_.task.name(), task.empty() ? "something else" : task);
  restore(checkpoint.tensors);
  health_.load(checkpoint.tensors, "health.");
  loss_scale_.load(checkpoint.tensors, "loss_scale.");
  step_ = counter(checkpoint.tensors, "trainer.step");
  batches_taken_ = counter(checkpoint.tensors, "trainer.batches");
  salt_ = counter(checkpoint.tensors, "trainer.salt");
  // With batches of another size (more ranks, fewer, other settings) the run goes on at the same item.
  const int64_t now = parts_.training.items_per_batch();
  const int64_t then = counter(checkpoint.tensors, "trainer.batch_items", 0);
  origin_ = counter(checkpoint.tensors, "trainer.origin", 0);
  if (then > 0 && now > 0 && then != now) {
    origin_ += batches_taken_ * then;
    batches_taken_ = 0;
  }
  if (now > 0) parts_.training.start_from(origin_);
  saved_step_ = step_;
  save_pending_ = false;
}

bool Trainer::resume() {
  require(has_folder(), "[trainer] there is no run folder to resume from");
  Checkpoint found;
  std::string description;
  group_->on_main("resume", 0, [&] {
    if (auto newest =
            parts_.folder->latest_usable([this](const std::string& text) { reporter_->warning(text); })) {
      found = std::move(newest->checkpoint);
      description = found.meta.dump();
    }
  });
  // Only the main rank reads the file; the others need not see its disk.
  description = group_->from_main(description);
  if (description.empty()) return false;
  if (!group_->main()) found.meta = nlohmann::ordered_json::parse(description);
  group_->from_main(found.tensors);
  load(found);
  resumed_from_ = step_;
  if (group_->main()) parts_.folder->truncate_metrics(step_);
  return true;
}

// What every rank computes for itself must have stayed the same everywhere.
void Trainer::check_agreement() const {
  if (group_->alone()) return;
  double sum = 0;
  const auto add = [&sum](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_floating_point())
      sum = 1.25 * sum + tensor.detach().to(at::kDouble).norm().item<double>();
  };
  torch::nn::Module& model = parts_.task.model();
  for (const at::Tensor& parameter : model.parameters()) add(parameter);
  for (const auto& module : model.modules())
    if (dynamic_cast<GroupMember*>(module.get()) != nullptr)
      for (const at::Tensor& buffer : module->buffers(/*recurse=*/false)) add(buffer);
  group_->require_same("the model after a step", fmt::format("fingerprint {:.17g}", sum));
}

std::string Trainer::save() {
  require(has_folder(), "[trainer] there is no run folder to save to");
  group_->enter("save", step_);
  check_agreement();
  std::string path;
  const Checkpoint state = checkpoint();
  group_->on_main("save", step_, [&] {
    KeepRule keep;
    keep.last = config_.keep_last;
    keep.every = config_.keep_every;
    path = parts_.folder->save(state, keep);
    reporter_->saved(path, step_);
  });
  saved_step_ = step_;
  save_pending_ = false;
  return path;
}

// To the newest checkpoint that was made between good steps. The data goes on from where it is now and the
// draws are salted, so that the run does not walk into the same step again.
bool Trainer::roll_back() {
  if (!has_folder()) return false;
  group_->enter("rollback", step_);
  Checkpoint saved;
  bool found = false;
  if (group_->main())
    for (const CheckpointEntry& entry : parts_.folder->checkpoints()) {
      if (!entry.problem.empty()) continue;
      try {
        saved = load_checkpoint(entry.path);
        if (!saved.meta.value("healthy", true)) continue;
        found = true;
        break;
      } catch (const Error& error) {
        reporter_->warning(error.what());
      }
    }
  if (group_->from_main(found ? "found" : "") != "found") return false;
  group_->from_main(saved.tensors);
  restore(saved.tensors);
  step_ = counter(saved.tensors, "trainer.step");
  ++salt_;
  saved_step_ = step_;
  save_pending_ = false;
  health_.rolled_back();
  reporter_->warning(fmt::format("went back to step {} ({} of {} times): {}", step_, health_.rollbacks(),
                                 config_.health.max_rollbacks, health_.last_reason()));
  return true;
}

}  // namespace melete
