// The trainer around its steps: validation, samples, checkpoints, stopping.
#include <torch/nn/module.h>

#include <algorithm>

#include "core/autocast.h"
#include "core/base/error.h"
#include "run/run_folder.h"
#include "run/sample_writer.h"
#include "train/scopes.h"
#include "train/trainer.h"

namespace melete {

void Trainer::announce() {
  RunStart about = parts_.about;
  about.task = parts_.task.name();
  about.precision = config_.precision;
  about.device = config_.device;
  about.resumed_from_step = resumed_from_;
  about.steps_total = config_.steps;
  if (parts_.folder) about.folder = parts_.folder->path();
  for (const RunningPhase& running : phases_) {
    int64_t count = 0;
    for (const at::Tensor& parameter : running.parameters) count += parameter.numel();
    about.parameter_counts.emplace_back(running.phase.name, count);
  }
  reporter_->start(about);
}

std::vector<ValidationReport> Trainer::validate() {
  if (parts_.validation == nullptr) return {};
  const at::NoGradGuard no_gradient;
  const EvaluationScope evaluation(parts_.task.model());
  std::vector<ValidationReport> reports;
  for (const char* label : {"online", "ema"}) {
    std::optional<EmaScope> averaged;
    if (std::string(label) == "ema") {
      if (!ema_) continue;
      averaged.emplace(*ema_);
    }
    std::vector<std::pair<std::string, at::Tensor>> sums;
    for (int64_t number = 0; number < config_.validate_batches; ++number) {
      StepContext context;
      context.step = step_;
      context.micro_batch = number;
      context.training = false;
      const std::unique_ptr<Draws> draws = make_draws_(context, 0);
      context.draws = draws.get();
      const Batch batch = fetch(*parts_.validation, number);
      const AutocastScope mixed(device_.type(), config_.precision == "bf16");
      Losses losses = parts_.task.validate(batch, context);
      bool named = false;
      for (const auto& item : losses.named) named |= item.first == "loss";
      if (losses.total.defined() && !named) losses.named.insert(losses.named.begin(), {"loss", losses.total});
      if (number == 0) sums.reserve(losses.named.size());
      for (const auto& [name, value] : losses.named) {
        const at::Tensor one = value.detach().to(device_, at::kFloat).reshape({});
        const auto found = std::find_if(sums.begin(), sums.end(),
                                        [&, &key = name](const auto& s) { return s.first == key; });
        if (found == sums.end())
          sums.emplace_back(name, one);
        else
          found->second = found->second + one;
      }
    }
    ValidationReport report;
    report.step = step_;
    report.label = label;
    report.chance_levels = parts_.task.chance_levels();
    if (!sums.empty()) {
      std::vector<at::Tensor> values;
      for (const auto& sum : sums) values.push_back(sum.second);
      at::Tensor means = at::stack(values) / static_cast<double>(config_.validate_batches);
      ranks_->mean_of_values(means);
      means = means.to(at::kCPU).contiguous();
      for (size_t i = 0; i < sums.size(); ++i)
        report.losses.emplace_back(sums[i].first, means.data_ptr<float>()[i]);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void Trainer::write_samples() {
  if (parts_.validation == nullptr || parts_.folder == nullptr || !main_rank()) return;
  const at::NoGradGuard no_gradient;
  const EvaluationScope evaluation(parts_.task.model());
  SampleWriter writer(parts_.folder->path(), step_, *reporter_);
  const Batch batch = fetch(*parts_.validation, 0);  // always the same one: what changes is the model
  const AutocastScope mixed(device_.type(), config_.precision == "bf16");
  parts_.task.write_samples(batch, "online", writer);
  if (ema_) {
    const EmaScope averaged(*ema_);
    parts_.task.write_samples(batch, "ema", writer);
  }
}

RunResult Trainer::finish(Outcome outcome, const std::string& reason) {
  if (outcome != Outcome::failed && parts_.folder && main_rank() && saved_step_ != step_) save();
  reporter_->finished(reason);
  return {outcome, reason, step_};
}

RunResult Trainer::run(const std::atomic<bool>& stop) {
  announce();
  while (step_ < config_.steps) {
    if (stop.load()) return finish(Outcome::stopped, fmt::format("stopped after step {}", step_));
    const StepReport report = step();
    if (report.skipped || due(config_.log_every) || step_ == config_.steps) reporter_->step(report);
    if (verdict_ == Verdict::give_up)
      return finish(
          Outcome::failed,
          fmt::format(
              "{} steps in a row were not finite ({}) and going back {} times did not help; try a lower "
              "learning rate, a smaller clip norm or precision fp32",
              health_.bad_in_a_row(), health_.last_reason(), health_.rollbacks()));
    if (verdict_ == Verdict::roll_back) {
      if (!roll_back())
        return finish(
            Outcome::failed,
            fmt::format(
                "{} steps in a row were not finite ({}) and there is no good checkpoint to go back to; "
                "try a lower learning rate, a smaller clip norm or precision fp32",
                health_.bad_in_a_row(), health_.last_reason()));
      continue;
    }
    // The checkpoint comes first: whatever happens while validating or sampling, this step is safe.
    save_pending_ |= due(config_.save_every);
    if (save_pending_ && !health_.in_bad_streak() && parts_.folder && main_rank()) save();
    if (due(config_.validate_every))
      for (const ValidationReport& validation : validate()) reporter_->validation(validation);
    if (due(config_.sample_every)) {
      try {
        write_samples();
      } catch (const Error& error) {  // a full disk must not end a run that can still learn
        reporter_->warning(fmt::format("no samples at step {}: {}", step_, error.what()));
      }
    }
  }
  return finish(Outcome::finished, fmt::format("finished after step {}", step_));
}

}  // namespace melete
