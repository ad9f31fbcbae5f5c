#include "train/trainer.h"

#include <ATen/Context.h>
#include <torch/nn/module.h>

#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <set>

#include "core/autocast.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/device.h"
#include "dist/group_member.h"
#include "train/phase_config.h"
#include "train/scopes.h"

namespace melete {

namespace {

// Sums of named scalars over micro-batches, kept on their device until the end of the phase.
class Sums {
 public:
  void add(const std::string& name, const at::Tensor& value) {
    require(value.defined() && value.numel() == 1, "[trainer] the loss {} is not one number", name);
    const at::Tensor number = value.detach().to(at::kFloat).reshape({});
    for (auto& entry : entries_)
      if (entry.name == name) {
        entry.sum = entry.sum + number;
        ++entry.count;
        return;
      }
    entries_.push_back({name, number, 1});
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : entries_) all.push_back(entry.name);
    return all;
  }

  std::vector<at::Tensor> means() const {
    std::vector<at::Tensor> all;
    for (const auto& entry : entries_) all.push_back(entry.sum / static_cast<double>(entry.count));
    return all;
  }

 private:
  struct Entry {
    std::string name;
    at::Tensor sum;
    int64_t count;
  };
  std::vector<Entry> entries_;
};

// Single numbers, most of them on the device, in one trip: [values] double.
at::Tensor on_host(const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> away;
  std::vector<int64_t> places;
  for (size_t i = 0; i < values.size(); ++i)
    if (!values[i].device().is_cpu()) {
      away.push_back(values[i]);
      places.push_back(static_cast<int64_t>(i));
    }
  if (away.empty()) return at::stack(values).to(at::kDouble).contiguous();
  const at::Tensor home = at::stack(away).to(at::kCPU).to(at::kDouble);
  if (away.size() == values.size()) return home.contiguous();
  at::Tensor together = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].device().is_cpu()) together[static_cast<int64_t>(i)] = values[i].to(at::kDouble);
  return together.index_copy_(0, at::tensor(places, at::kLong), home);
}

// One trip to the CPU for all of them, then their mean over all ranks: everyone reports and judges the same
// numbers. The named ones count by this rank's share of the batch; norms, which follow, are
// the same on all ranks.
std::vector<double> fetch_values(const std::vector<std::string>& names, std::vector<at::Tensor> values,
                                 Group& group, double weight) {
  if (values.empty()) return {};
  at::Tensor together = on_host(values);
  if (!group.alone()) {
    together.narrow(0, 0, static_cast<int64_t>(names.size())).mul_(weight);
    // Ranks that have different names for their values must not mix them up.
    uint64_t key = values.size();
    for (const std::string& name : names) key = random_key(key, name);
    const auto sign = static_cast<double>(key >> 40);
    const int64_t count = together.numel(), padded = (count + 1 + 31) / 32 * 32;
    at::Tensor sent = at::zeros({padded}, at::kDouble);
    sent.narrow(0, 0, count).copy_(together);
    sent[padded - 1].fill_(sign);
    group.mean(sent);
    require(sent[padded - 1].item<double>() == sign, "[dist] the ranks report different losses ({} here)",
            fmt::join(names, ", "));
    together = sent.narrow(0, 0, count);
  }
  const double* numbers = together.data_ptr<double>();
  return {numbers, numbers + together.numel()};
}

}  // namespace

Trainer::Trainer(TrainerParts parts, const TrainerConfig& config)
    : parts_(std::move(parts)),
      config_(config),
      group_(parts_.group ? parts_.group : &alone_),
      device_(device_named(config.device, group_->place().local_rank)),
      mixed_(config.precision == "fp16" || (config.precision == "bf16" && bf16_pays(device_.type()))),
      mixed_type_(config.precision == "fp16" ? at::kHalf : at::kBFloat16),
      loss_scale_(config.precision == "fp16"),
      reporter_(parts_.reporter ? parts_.reporter : &silent_),
      on_track_(parts_.expectation, parts_.task.main_figure(), *reporter_),
      health_(config.health) {
  require(config.steps >= 1 && config.accumulate >= 1,
          "[trainer] expected steps and accumulate of at least 1");
  require(config.precision == "fp32" || config.precision == "bf16" || config.precision == "fp16",
          "[trainer] expected precision fp32, bf16 or fp16, got {}", config.precision);
  require(config.precision != "fp16" || device_.is_cuda(),
          "[trainer] fp16 needs a GPU, and the device is {}; try precision bf16", device_.str());
  if (device_.is_cuda()) {
    at::globalContext().setAllowTF32CuBLAS(config.tf32);
    at::globalContext().setAllowTF32CuDNN(config.tf32);
  }
  torch::nn::Module& model = parts_.task.model();
  model.to(device_);
  // Everyone starts from the main rank's weights, and layers that follow the data follow all ranks' data.
  std::vector<at::Tensor> state = model.parameters();
  for (const at::Tensor& buffer : model.buffers())
    if (buffer.defined()) state.push_back(buffer);
  group_->copy_from_main(state);
  for (const auto& module : model.modules())
    if (auto* member = dynamic_cast<GroupMember*>(module.get()))
      member->join(group_->alone() ? nullptr : group_);
  has_folder_ = group_->from_main(parts_.folder ? "folder" : "") == "folder";
  for (Phase& phase : parts_.task.phases()) {
    leave_out_frozen(phase);
    std::vector<Optimiser> optimisers;
    std::vector<at::Tensor> parameters;
    for (const ParameterGroup& group : phase.groups) {
      optimisers.emplace_back(group.parameters, phase.optimiser,
                              config.dist.shard_optimiser ? group_ : nullptr);
      for (const auto& [name, tensor] : group.parameters) parameters.push_back(tensor);
    }
    Schedule schedule(phase.schedule, phase.optimiser.learning_rate, config.steps);
    std::vector<at::Tensor> reduced = parameters;
    reduced.insert(reduced.end(), phase.also_in_norm.begin(), phase.also_in_norm.end());
    phases_.push_back({std::move(phase), std::move(optimisers), std::move(schedule), std::move(parameters),
                       false, "", GradientReducer(*group_, std::move(reduced), config.dist.bucket_mb)});
  }
  check_phases();
  std::set<const void*> counted_elsewhere;
  for (const RunningPhase& running : phases_)
    for (const at::Tensor& tensor : running.phase.also_in_norm)
      counted_elsewhere.insert(tensor.unsafeGetTensorImpl());
  for (RunningPhase& running : phases_) {
    running.label = phases_.size() == 1 ? "" : running.phase.name + ".";
    for (const at::Tensor& tensor : running.parameters)
      running.keep_gradients |= counted_elsewhere.count(tensor.unsafeGetTensorImpl()) > 0;
  }
  if (config.ema.enabled)
    ema_.emplace(parts_.task.model(), config.ema,
                 [this](const std::string& name) { return parts_.task.averaged(name); });
  make_draws_ = [this](const StepContext& context, int64_t phase) -> std::unique_ptr<Draws> {
    const auto seed = static_cast<uint64_t>(config_.seed);
    const auto rank = static_cast<uint64_t>(group_->rank());
    const auto micro = static_cast<uint64_t>(context.micro_batch);
    // Validation draws do not depend on the step, so that its losses can be compared over the run, nor on the
    // rank that happens to have the batch.
    if (!context.training) return std::make_unique<SeededDraws>(random_key(seed, "validation", {micro}));
    const auto key = [&](const char* purpose, uint64_t whose) {
      return random_key(seed, purpose,
                        {static_cast<uint64_t>(context.step), static_cast<uint64_t>(phase), micro, whose,
                         static_cast<uint64_t>(salt_)});
    };
    return std::make_unique<SeededDraws>(key("draws", rank), key("shared draws", 0));
  };
}

Trainer::~Trainer() {
  for (const auto& module : parts_.task.model().modules())
    if (auto* member = dynamic_cast<GroupMember*>(module.get())) member->join(nullptr);
}

void Trainer::check_phases() const {
  const std::string task = parts_.task.name();
  require(!phases_.empty(), "[trainer] the task {} has no phases", task);
  // What is not in the model would not be in the checkpoint.
  std::map<std::string, const void*> in_model;
  for (const auto& item : parts_.task.model().named_parameters())
    in_model[item.key()] = item.value().unsafeGetTensorImpl();
  std::set<std::string> phase_names;
  for (size_t i = 0; i < phases_.size(); ++i) {
    const Phase& phase = phases_[i].phase;
    require(phase_names.insert(phase.name).second, "[trainer] {} has two phases called {}", task, phase.name);
    require(bool(phase.loss), "[trainer] the phase {} of {} has no loss", phase.name, task);
    require(phase.new_batches || i > 0, "[trainer] the first phase of {} must take new batches", task);
    require(!phases_[i].parameters.empty(), "[trainer] the phase {} of {} has no parameters", phase.name,
            task);
    std::set<std::string> seen;
    for (const ParameterGroup& group : phase.groups)
      for (const auto& [name, tensor] : group.parameters) {
        const auto found = in_model.find(name);
        require(found != in_model.end() && found->second == tensor.unsafeGetTensorImpl(),
                "[trainer] the parameter {} of phase {} is not the model's parameter of that name", name,
                phase.name);
        require(seen.insert(name).second, "[trainer] the parameter {} is in two groups of phase {}", name,
                phase.name);
      }
  }
}

Batch Trainer::fetch(BatchSource& source, int64_t number) const {
  Batch batch = source.batch(number);
  if (!device_.is_cpu()) batch.move_to(device_);
  return batch;
}

struct Trainer::PhaseResult {
  NamedValues losses, norms;
  std::map<std::string, double> chance_levels;  // of this batch
  double rate = 0;
  std::string problem;  // empty: all was finite and the weights have moved
};

Trainer::PhaseResult Trainer::run_phase(size_t index, std::vector<Batch>& batches) {
  RunningPhase& running = phases_[index];
  const Phase& phase = running.phase;
  std::vector<at::Tensor> wanted = running.parameters;
  wanted.insert(wanted.end(), phase.also_in_norm.begin(), phase.also_in_norm.end());
  for (Optimiser& optimiser : running.optimisers) optimiser.clear_gradients();
  loss_scale_.apply(phase.also_in_norm);  // kept from another phase; this one adds to them

  const std::string total_name = running.label + "loss";
  Sums sums;
  {
    const GradientScope only_this_phase(parts_.task.model(), wanted);
    for (int64_t micro = 0; micro < config_.accumulate; ++micro) {
      StepContext context;
      context.step = step_;
      context.micro_batch = micro;
      const std::unique_ptr<Draws> draws = make_draws_(context, static_cast<int64_t>(index));
      context.draws = draws.get();
      Losses losses;
      group_->enter("forward", step_ + 1);
      {
        const AutocastScope mixed(device_.type(), mixed_, mixed_type_);
        losses = phase.loss(batches[static_cast<size_t>(micro)], context);
      }
      require(losses.total.defined() && losses.total.numel() == 1,
              "[trainer] the loss of phase {} is not one number", phase.name);
      const at::Tensor share =
          losses.total.to(at::kFloat).reshape({}) *
          (loss_scale_.value() * parts_.training.weight() / static_cast<double>(config_.accumulate));
      if (micro + 1 == config_.accumulate) {
        group_->enter("reduce", step_ + 1);
        running.reducer.backward(share);
      } else if (share.requires_grad()) {
        share.backward();
      }
      sums.add(total_name, losses.total);
      for (const auto& [name, value] : losses.named)
        if (name != total_name) sums.add(name, value);
      for (const auto& [name, value] : losses.chance)
        sums.add(kChancePrefix + (name == "loss" ? total_name : name), value);
    }
  }

  loss_scale_.undo(wanted);

  PhaseResult result;
  result.rate = running.schedule.rate(step_);
  std::vector<at::Tensor> values = sums.means();
  const at::Tensor also = phase.also_in_norm.empty() ? at::Tensor() : gradient_norm(phase.also_in_norm);
  for (const Optimiser& optimiser : running.optimisers) {
    const at::Tensor norm = optimiser.gradient_norm();
    values.push_back(also.defined() ? at::stack({norm, also}).norm() : norm);
  }
  const std::vector<std::string> names = sums.names();
  const std::vector<double> numbers = fetch_values(names, values, *group_, parts_.training.weight());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].starts_with(kChancePrefix)) {
      result.chance_levels[names[i].substr(kChancePrefix.size())] = numbers[i];
      continue;
    }
    result.losses.emplace_back(names[i], numbers[i]);
    // Only the total decides: a named figure may be undefined for a batch (an accuracy over no tokens).
    if (names[i] == total_name && !std::isfinite(numbers[i]))
      result.problem = fmt::format("{}: the loss is {}", phase.name, numbers[i]);
  }
  for (size_t i = 0; i < phase.groups.size(); ++i) {
    const double norm = numbers[names.size() + i];
    result.norms.emplace_back(phase.groups.size() == 1 ? phase.name : phase.name + "." + phase.groups[i].name,
                              norm);
    if (result.problem.empty() && !std::isfinite(norm))
      result.problem =
          fmt::format("{}: the gradient norm of {} is {}", phase.name, phase.groups[i].name, norm);
  }
  if (result.problem.empty())
    for (size_t i = 0; i < running.optimisers.size(); ++i) {
      const double scale = clip_scale(numbers[names.size() + i], phase.clip_norm);
      if (const auto momentum = running.schedule.momentum(step_)) running.optimisers[i].set_beta1(*momentum);
      running.optimisers[i].step(result.rate, scale);
      // Gradients that another phase counts in its norm are the clipped ones.
      if (!running.keep_gradients || scale == 1) continue;
      for (const auto& [name, tensor] : phase.groups[i].parameters)
        if (tensor.grad().defined()) tensor.grad().mul_(scale);
    }
  if (!running.keep_gradients || !result.problem.empty())
    for (Optimiser& optimiser : running.optimisers) optimiser.clear_gradients();
  return result;
}

StepReport Trainer::step() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const double waited = parts_.training.wait_seconds();
  torch::nn::Module& model = parts_.task.model();
  if (!model.is_training()) model.train();

  StepReport report;
  std::map<std::string, double> chance_levels;  // of these batches
  std::vector<Batch> batches;
  int64_t items = 0;
  for (size_t i = 0; i < phases_.size(); ++i) {
    const Phase& phase = phases_[i].phase;
    if (step_ < phase.first_step) continue;
    if (phase.new_batches) {
      batches.clear();
      for (int64_t micro = 0; micro < config_.accumulate; ++micro) {
        group_->enter("data", step_ + 1);
        batches.push_back(fetch(parts_.training, batches_taken_++));
        const int64_t counted = parts_.training.items_per_batch();
        items += counted > 0 ? counted : batches.back().items() * group_->size();
      }
    }
    const PhaseResult result = run_phase(i, batches);
    report.losses.insert(report.losses.end(), result.losses.begin(), result.losses.end());
    chance_levels.insert(result.chance_levels.begin(), result.chance_levels.end());
    if (i > 0)
      for (const auto& [name, value] : result.losses) report.opponent_losses.push_back(name);
    report.gradient_norms.insert(report.gradient_norms.end(), result.norms.begin(), result.norms.end());
    report.learning_rates.emplace_back(phase.name, result.rate);
    if (!result.problem.empty()) {
      report.skipped = true;
      report.skip_reason += (report.skip_reason.empty() ? "" : "; ") + result.problem;
    }
  }
  verdict_ = health_.judge(!report.skipped, report.skip_reason);
  loss_scale_.judge(!report.skipped);
  // A batch that gave NaN may have left it in buffers too; the average must not take that in.
  if (ema_ && !report.skipped) ema_->update();
  ++step_;

  report.step = step_;
  report.steps_total = config_.steps;
  report.chance_levels = parts_.task.chance_levels();
  for (const auto& [name, level] : chance_levels) report.chance_levels[name] = level;
  report.skipped_total = health_.bad_total();
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  report.data_wait_seconds = parts_.training.wait_seconds() - waited;
  report.items_per_second = report.seconds > 0 ? static_cast<double>(items) / report.seconds : 0;
  return report;
}

}  // namespace melete
