// Whether a run goes as it should: its figures beside what its recipe gave where it was measured, and what
// the figures themselves give away (discriminators that guess or have won, codebooks of which hardly a code
// is used). Says so in words, each thing once.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "run/alarms.h"
#include "run/expectation.h"
#include "run/reporter.h"

namespace melete {

class OnTrack {
 public:
  OnTrack(std::optional<Expectation> table, MainFigure main, Reporter& reporter);

  // Before a report is shown: what was expected goes into it.
  void expect(StepReport& report) const;
  void expect(ValidationReport& report) const;
  // After it was shown: what is to be said of it.
  void judge(const StepReport& report);
  void judge(const ValidationReport& report);

  Alarms& alarms() { return alarms_; }

 private:
  void judge_expected(const std::string& side, const std::string& name, double value, const Band& band,
                      bool higher_is_better, const std::map<std::string, double>& chance_levels);
  std::string likely_causes(const std::string& side, const std::string& name, double value,
                            const std::map<std::string, double>& chance_levels) const;
  void judge_opponents(const StepReport& report);
  void judge_codes(const ValidationReport& report);
  void judge_collapse(const ValidationReport& report);

  std::optional<Expectation> table_;
  MainFigure main_;
  Reporter& reporter_;
  Alarms alarms_;
  std::map<std::string, std::deque<double>> totals_, opponents_;  // the last values of training losses
  bool training_judged_ = false, training_off_ = false;
  int64_t step_ = 0, skipped_ = 0;
};

}  // namespace melete
