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

namespace {

// What a person should know of a table before the first step.
std::vector<std::string> lines_of(const Expectation& table) {
  std::vector<std::string> lines;
  if (const auto rows = table.validation.find(table.main.name);
      rows != table.validation.end() && !rows->second.empty())
    lines.push_back(fmt::format("{} {} after {} steps on {}", table.main.name,
                                band_text(rows->second.rbegin()->second), rows->second.rbegin()->first,
                                table.data));
  else
    lines.push_back("measured on " + table.data);
  for (const std::string& unlike : table.unlike) lines.push_back("unlike the measured run: " + unlike);
  return lines;
}

}  // namespace

void Trainer::announce() {
  RunStart about = parts_.about;
  about.task = parts_.task.name();
  about.precision = config_.precision;
  about.device = device_.str();
  about.resumed_from_step = resumed_from_;
  about.steps_total = config_.steps;
  about.main_figure = parts_.task.main_figure();
  if (parts_.expectation) about.expected = lines_of(*parts_.expectation);
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
  group_->enter("validation", step_);
  const at::NoGradGuard no_gradient;
  const EvaluationScope evaluation(parts_.task.model());
  std::vector<ValidationReport> reports;
  for (const char* label : {"online", "ema"}) {
    std::optional<EmaScope> averaged;
    if (std::string(label) == "ema") {
      if (!ema_) continue;
      averaged.emplace(*ema_);
    }
    // Batch by batch in turn over the ranks; what is missing on one (it had no batch) others have counted.
    std::vector<std::string> names;
    std::map<std::string, std::pair<at::Tensor, int64_t>> sums;
    for (int64_t number = group_->rank(); number < config_.validate_batches; number += group_->size()) {
      StepContext context;
      context.step = step_;
      context.micro_batch = number;
      context.training = false;
      const std::unique_ptr<Draws> draws = make_draws_(context, 0);
      context.draws = draws.get();
      const Batch batch = fetch(*parts_.validation, number);
      const AutocastScope mixed(device_.type(), mixed_, mixed_type_);
      Losses losses = parts_.task.validate(batch, context);
      bool named = false;
      for (const auto& item : losses.named) named |= item.first == "loss";
      if (losses.total.defined() && !named) losses.named.insert(losses.named.begin(), {"loss", losses.total});
      for (const auto& [name, value] : losses.chance) losses.named.emplace_back(kChancePrefix + name, value);
      for (const auto& [name, value] : losses.named) {
        const at::Tensor one = value.detach().to(device_, at::kDouble).reshape({});
        auto& [sum, count] = sums[name];
        if (count++ == 0) names.push_back(name);
        sum = sum.defined() ? sum + one : one;
      }
    }
    ValidationReport report;
    report.step = step_;
    report.label = label;
    report.chance_levels = parts_.task.chance_levels();
    // The main rank always has a batch, and so the names.
    names = nlohmann::json::parse(group_->from_main(nlohmann::json(names).dump()))
                .get<std::vector<std::string>>();
    if (!names.empty()) {
      at::Tensor totals = at::zeros({2, static_cast<int64_t>(names.size())}, at::kDouble);
      for (size_t i = 0; i < names.size(); ++i) {
        const auto found = sums.find(names[i]);
        if (found == sums.end()) continue;
        totals[0][static_cast<int64_t>(i)] = found->second.first.cpu();
        totals[1][static_cast<int64_t>(i)] = found->second.second;
      }
      group_->sum(totals);
      const at::Tensor means = (totals[0] / totals[1]).contiguous();
      for (size_t i = 0; i < names.size(); ++i) {
        const double mean = means.data_ptr<double>()[i];
        if (names[i].starts_with(kChancePrefix))
          report.chance_levels[names[i].substr(kChancePrefix.size())] = mean;
        else
          report.losses.emplace_back(names[i], mean);
      }
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void Trainer::write_samples() {
  if (parts_.validation == nullptr || !has_folder()) return;
  // May take longer than anyone waits in a collective; the others wait for the main rank to be done.
  group_->on_main("samples", step_, [this] {
    const at::NoGradGuard no_gradient;
    const EvaluationScope evaluation(parts_.task.model());
    SampleWriter writer(parts_.folder->path(), step_, *reporter_, &on_track_.alarms());
    const Batch batch = fetch(*parts_.validation, 0);  // always the same one: what changes is the model
    const AutocastScope mixed(device_.type(), mixed_, mixed_type_);
    parts_.task.write_samples(batch, "online", writer);
    if (ema_) {
      const EmaScope averaged(*ema_);
      parts_.task.write_samples(batch, "ema", writer);
    }
  });
}

RunResult Trainer::finish(Outcome outcome, const std::string& reason) {
  if (outcome != Outcome::failed && has_folder() && saved_step_ != step_) save();
  reporter_->finished(reason);
  return {outcome, reason, step_};
}

RunResult Trainer::run(const std::atomic<bool>& stop) {
  announce();
  while (step_ < config_.steps) {
    group_->enter("barrier", step_ + 1);
    if (group_->any(stop.load()))
      return finish(Outcome::stopped, fmt::format("stopped after step {}", step_));
    StepReport report = step();
    on_track_.expect(report);
    if (report.skipped || due(config_.log_every) || step_ == config_.steps) reporter_->step(report);
    on_track_.judge(report);
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
    if (save_pending_ && !health_.in_bad_streak() && has_folder()) save();
    if (due(config_.validate_every))
      for (ValidationReport& validation : validate()) {
        on_track_.expect(validation);
        reporter_->validation(validation);
        on_track_.judge(validation);
      }
    if (due(config_.sample_every)) {
      try {
        write_samples();
      } catch (const Error& error) {  // a full disk must not end a run that can still learn
        if (!group_->main()) throw;   // this rank waited in vain
        reporter_->warning(fmt::format("no samples at step {}: {}", step_, error.what()));
      }
    }
  }
  return finish(Outcome::finished, fmt::format("finished after step {}", step_));
}

}  // namespace melete
