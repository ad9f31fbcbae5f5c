// The learning rates that audiolm-pytorch really uses. It builds the warm-up before the scheduler, so the
// scheduler takes the already dampened rate as its base, while its recursive formulas continue from the
// undampened one. Reference values need this sequence; everything else uses train/schedule.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/cycles.h"

namespace melete {

// One of PyTorch 1.13's schedulers by class name, with its keyword arguments. Each gives the rate of an epoch
// from the rate in force before it and the base rate: most are recursive.
class TorchScheduler {
 public:
  // name: "" or "LambdaLR" (constant), MultiplicativeLR is not possible in JSON; StepLR, MultiStepLR,
  // ConstantLR, LinearLR, ExponentialLR, PolynomialLR, CosineAnnealingLR, CosineAnnealingWarmRestarts,
  // OneCycleLR, CyclicLR.
  TorchScheduler(const std::string& name, const nlohmann::ordered_json& arguments);

  double rate(int64_t epoch, double rate_before, double base_rate) const;
  // What the optimiser's beta1 is in that epoch, where the curve moves it.
  std::optional<double> momentum(int64_t epoch) const;

 private:
  enum class Kind {
    constant,
    step,
    multi_step,
    constant_factor,
    linear,
    exponential,
    polynomial,
    cosine,
    restarts,
    one_cycle,
    cyclic
  };
  double argument(const char* key, double otherwise) const;
  bool says(const char* key, bool otherwise) const;
  CyclePoint one_cycle_at(int64_t epoch) const;
  CyclePoint cyclic_at(int64_t epoch) const;

  Kind kind_;
  nlohmann::ordered_json arguments_;
};

class UpstreamSchedule {
 public:
  UpstreamSchedule(double learning_rate, int64_t warmup_steps, TorchScheduler scheduler);

  double rate(int64_t step);  // in force in that optimiser step, counted from 0
  std::optional<double> momentum(int64_t step) const { return scheduler_.momentum(step); }

 private:
  void restart();
  void advance();
  double dampened(double rate) const;

  double learning_rate_;
  int64_t warmup_steps_;
  TorchScheduler scheduler_;
  int64_t step_ = 0;
  double base_rate_ = 0;   // what the scheduler took as its base
  double remembered_ = 0;  // the rate before dampening
  double in_force_ = 0;
};

}  // namespace melete
