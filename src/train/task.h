// What a system tells the one training loop: its model, its phases (a GAN has two), the losses of a batch,
// and what a person should hear or see. One small file in a system's room.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/tensors.h"
#include "run/reporter.h"
#include "train/optimiser.h"
#include "train/schedule.h"

namespace torch::nn {
class Module;
}

namespace melete {

class Batch;
class Draws;
class SampleWriter;

struct Losses {
  at::Tensor total;          // scalar; backward runs from here
  NamedTensors named;        // detached scalars, for people: losses, accuracies, codebook use
  NamedTensors chance = {};  // what guessing would give, by loss, where that depends on the batch
};

struct StepContext {
  int64_t step = 0;         // from 0
  int64_t micro_batch = 0;  // of the accumulation, from 0
  bool training = true;
  Draws* draws = nullptr;
};

// Each group is clipped by its own norm.
struct ParameterGroup {
  std::string name;
  NamedTensors parameters;  // by their name in the model
};

struct Phase {
  std::string name;
  std::vector<ParameterGroup> groups;
  OptimiserConfig optimiser;
  ScheduleConfig schedule;
  double clip_norm = 0;             // 0: no clipping
  std::vector<std::string> frozen;  // patterns of names ("encoder.*") whose parameters do not move
  // Counted in the norm of every group but not moved. Their gradients are left as the previous phase made
  // them and grow by this phase's: audiolm-pytorch clips its generator by a norm that covers the
  // discriminators.
  std::vector<at::Tensor> also_in_norm;
  std::function<Losses(const Batch&, const StepContext&)> loss;
  bool new_batches = true;  // false: the same micro-batches as the phase before
  int64_t first_step = 0;   // until then the phase sits out
};

class Task {
 public:
  virtual ~Task() = default;

  virtual std::string name() const = 0;
  virtual torch::nn::Module& model() = 0;
  virtual std::vector<Phase> phases() = 0;
  virtual nlohmann::ordered_json config() const = 0;

  // In eval mode and without gradients, on held-out data.
  virtual Losses validate(const Batch& batch, const StepContext& context) = 0;
  // Files to hear and see, with the weights now in the model; label says which: "online" or "ema".
  virtual void write_samples(const Batch& batch, const std::string& label, SampleWriter& writer) = 0;

  // The figure of validate() that says how good the model is.
  virtual MainFigure main_figure() const { return {}; }
  // The loss of guessing, by loss name, printed beside the loss; see also Losses::chance.
  virtual std::map<std::string, double> chance_levels() const { return {}; }
  // Which parameters and buffers the moving average covers; discriminators need none.
  virtual bool averaged(const std::string& /*name*/) const { return true; }
  // What a task keeps besides its model's parameters and buffers.
  virtual void save_state(TensorMap& /*tensors*/) const {}
  virtual void load_state(const TensorMap& /*tensors*/) {}
};

}  // namespace melete
