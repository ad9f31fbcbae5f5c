// A moving average of a model's weights: every float parameter and float buffer; integer buffers are never
// touched. The decay grows with the step, as in ema_pytorch: 1 - (1 + t / inv_gamma)^-power, at most beta.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/tensors.h"

namespace torch::nn {
class Module;
}

namespace melete {

class Schema;

struct EmaConfig {
  bool enabled = true;
  double beta = 0.995;
  int64_t update_after_step = 500;  // until then the average is a copy
  int64_t update_every = 10;
  double inv_gamma = 1;
  double power = 2.0 / 3;
  double min_value = 0;
  bool power_function =
      false;  // beta is not constant but (1 - 1 / (step + 1))^(1 + power), Karras et al. 2023
};

void describe(Schema& schema, EmaConfig& config);

class Ema {
 public:
  using Filter = std::function<bool(const std::string& name)>;

  // Starts as a copy of the module; names that `wanted` refuses are left out and stay the module's own.
  Ema(torch::nn::Module& module, const EmaConfig& config, const Filter& wanted = {});

  void update();         // once after every training step
  double decay() const;  // of the update that was last made

  // <prefix>step, <prefix>started, <prefix>average.<name>
  void state(TensorMap& tensors, const std::string& prefix) const;
  void load(const TensorMap& tensors, const std::string& prefix);

  int64_t step() const { return step_; }
  bool started() const { return started_; }  // averaging, no longer copying
  const at::Tensor& average(const std::string& name) const;

 private:
  friend class EmaScope;
  struct Entry {
    std::string name;
    at::Tensor online, average;
  };
  void copy_online();
  double largest_decay() const;

  EmaConfig config_;
  std::vector<Entry> entries_;
  int64_t step_ = 0;
  bool started_ = false;
  bool swapped_ = false;
};

// For its lifetime the module holds the averaged weights. Storage changes hands; nothing is copied.
class EmaScope {
 public:
  explicit EmaScope(Ema& ema);
  ~EmaScope();
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;

 private:
  void swap();
  Ema& ema_;
};

}  // namespace melete
