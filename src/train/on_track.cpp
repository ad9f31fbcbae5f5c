#include "train/on_track.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/base/human.h"
#include "run/figure_names.h"

namespace melete {

namespace {

// Outside of its band by as much as the band is wide: far off.
constexpr double kFarInBands = 1;
constexpr size_t kOpponentWindow = 128;  // steps over which a discriminator is judged
constexpr double kGuessing = 0.99;       // of the loss of guessing, or more: it cannot tell
constexpr double kWon = 0.02;            // of it, or less: it always can
constexpr double kFewestCodes = 1.5;     // even use of so few codes says nothing
constexpr double kNearChance = 0.97;     // of the loss of guessing

void keep_last(std::deque<double>& values, double value, size_t count) {
  if (!std::isfinite(value)) return;
  values.push_back(value);
  if (values.size() > count) values.pop_front();
}

double mean(const std::deque<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::string in_words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// The last value that is not far off: a band's width beyond the band, but short of what guessing gives, which no
// width excuses.
double limit_of(const Band& band, const std::string& name, bool higher_is_better,
                const std::map<std::string, double>& chance_levels) {
  const double far = kFarInBands * (band.high - band.low);
  const auto chance = chance_levels.find(name);
  const bool guessed = chance != chance_levels.end() && chance->second > 0;
  if (higher_is_better) {
    const double limit = band.low - far;
    return guessed ? std::min(band.low, std::max(limit, chance->second / kNearChance)) : limit;
  }
  const double limit = band.high + far;
  return guessed ? std::max(band.high, std::min(limit, kNearChance * chance->second)) : limit;
}

const double* find(const NamedValues& values, const std::string& name) {
  for (const auto& entry : values)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

}  // namespace

OnTrack::OnTrack(std::optional<Expectation> table, MainFigure main, Reporter& reporter)
    : table_(std::move(table)), main_(std::move(main)), reporter_(reporter), alarms_(reporter) {}

void OnTrack::expect(StepReport& report) const {
  if (!table_) return;
  for (const auto& [name, value] : report.losses)
    if (const auto band = Expectation::at(table_->training, name, report.step)) report.expected[name] = *band;
}

void OnTrack::expect(ValidationReport& report) const {
  if (!table_ || report.label != table_->label) return;
  for (const auto& [name, value] : report.losses)
    if (const auto band = Expectation::at(table_->validation, name, report.step))
      report.expected[name] = *band;
}

void OnTrack::judge(const StepReport& report) {
  step_ = report.step;
  skipped_ = report.skipped_total;
  if (report.skipped) return;
  judge_opponents(report);
  for (const auto& [name, value] : report.losses)
    if (is_total_loss(name)) keep_last(totals_[name], value, kTrainingWindow);
  if (!table_ || report.losses.empty()) return;
  // The first phase's loss, at the steps of the table; a discriminator's says little about how good a model
  // is.
  const std::string& name = report.losses.front().first;
  const auto rows = table_->training.find(name);
  const auto values = totals_.find(name);
  if (rows == table_->training.end() || rows->second.count(report.step) == 0) return;
  if (values == totals_.end() ||
      static_cast<int64_t>(values->second.size()) < std::min(kTrainingWindow, report.step))
    return;
  judge_expected("training", name, mean(values->second), rows->second.at(report.step), false,
                 report.chance_levels);
  training_judged_ = true;
  training_off_ = alarms_.said("training " + name);
}

void OnTrack::judge(const ValidationReport& report) {
  step_ = report.step;
  judge_codes(report);
  judge_collapse(report);
  for (const char* name : {"loss", main_.name.c_str()}) {
    const auto band = report.expected.find(name);
    const double* value = find(report.losses, name);
    if (band == report.expected.end() || value == nullptr) continue;
    judge_expected("validation", name, *value, band->second, main_.name == name && main_.higher_is_better,
                   report.chance_levels);
    if (main_.name == "loss") break;
  }
}

void OnTrack::judge_expected(const std::string& side, const std::string& name, double value, const Band& band,
                             bool higher_is_better, const std::map<std::string, double>& chance_levels) {
  const double limit = limit_of(band, name, higher_is_better, chance_levels);
  const bool off = !std::isfinite(value) || (higher_is_better ? value < limit : value > limit);
  const bool inside = higher_is_better ? value >= band.low : value <= band.high;
  const std::string kind = side + " " + name;
  const std::string what =
      fmt::format("{} {} {} at step {}, expected {}{}", side, in_words(name), short_number(value), step_,
                  band_text(band), table_->data.empty() ? "" : " on " + table_->data);
  if (off) {
    if (!alarms_.said(kind)) alarms_.say(kind, what + ": " + likely_causes(side, name, value, chance_levels));
  } else if (inside && alarms_.said(kind)) {
    alarms_.forget(kind);
    reporter_.note(what + ": on track again");
  }
}

std::string OnTrack::likely_causes(const std::string& side, const std::string& name, double value,
                                   const std::map<std::string, double>& chance_levels) const {
  std::vector<std::string> causes;
  if (!table_->unlike.empty())
    causes.push_back(fmt::format("this run has {}", fmt::join(table_->unlike, ", ")));
  if (skipped_ > 0)
    causes.push_back(fmt::format("{} steps moved nothing, for want of finite numbers", skipped_));
  const auto chance = chance_levels.find(name);
  if (chance != chance_levels.end() && chance->second > 0 && value > kNearChance * chance->second)
    causes.push_back(
        fmt::format("it is what guessing gives ({}): is the learning rate right, and do the data "
                    "belong together",
                    short_number(chance->second)));
  if (side == "validation" && training_judged_ && !training_off_)
    causes.push_back(
        "the training loss is as expected: is there enough data, and is what is held out of the same kind");
  else
    causes.push_back(
        "is the data of another kind, or clipped or silent (`melete data check`), or is the "
        "learning rate wrong");
  return fmt::format("{}? `--overfit_one_batch` tells data from model", fmt::join(causes, "; "));
}

void OnTrack::judge_opponents(const StepReport& report) {
  for (const std::string& name : report.opponent_losses) {
    const auto chance = report.chance_levels.find(name);
    const double* value = find(report.losses, name);
    if (chance == report.chance_levels.end() || value == nullptr) continue;
    std::deque<double>& values = opponents_[name];
    keep_last(values, *value, kOpponentWindow);
    if (values.size() < kOpponentWindow) continue;
    const double usual = mean(values);
    if (usual >= kGuessing * chance->second)
      alarms_.say(
          "opponent " + name,
          fmt::format("the discriminator `{}` is dead: its loss was {} over {} steps, and guessing gives "
                      "{}; try a higher learning rate for it, or fewer gradient penalties",
                      name, short_number(usual), kOpponentWindow, short_number(chance->second)));
    else if (usual <= kWon * chance->second)
      alarms_.say(
          "opponent " + name,
          fmt::format("the discriminator `{}` has won: its loss was {} over {} steps, and guessing gives "
                      "{}; nothing can be learned from it; try a lower learning rate for it, or let it "
                      "begin later",
                      name, short_number(usual), kOpponentWindow, short_number(chance->second)));
  }
}

// Perplexity means codes in even use only where `code_use` stands beside it.
void OnTrack::judge_codes(const ValidationReport& report) {
  if (find(report.losses, "code_use") == nullptr) return;
  std::string collapsed;
  bool all = false;
  for (const auto& [name, value] : report.losses) {
    if (!name.starts_with("perplexity") || !(value < kFewestCodes)) continue;
    if (name == "perplexity")
      all = true;
    else
      collapsed += (collapsed.empty() ? "" : ", ") + name.substr(name.rfind('_') + 1);
  }
  if (all || !collapsed.empty())
    alarms_.say(
        "codes",
        fmt::format("{} collapsed at step {}: nearly everything becomes one code; try a lower learning "
                    "rate, a longer warm-up or a larger batch",
                    all ? "the codebooks have" : "codebook " + collapsed + " has", report.step));
}

// A task says itself that its model tells nothing apart any more.
void OnTrack::judge_collapse(const ValidationReport& report) {
  const double* collapsed = find(report.losses, "COLLAPSED");
  if (collapsed == nullptr) return;
  const std::string kind = "collapsed " + report.label;
  if (*collapsed < 0.5) return alarms_.forget(kind);
  alarms_.say(kind, fmt::format("collapsed at step {} ({}): the model gives nearly the same for everything; "
                                "try a lower learning rate, a longer warm-up or a larger batch",
                                report.step, report.label));
}

}  // namespace melete
