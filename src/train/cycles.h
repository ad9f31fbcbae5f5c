// Curves that rise and fall, as PyTorch's OneCycleLR and CyclicLR draw them. Both can move the optimiser's
// beta1 (its momentum) against the rate: high where the rate is low.
#pragma once

#include <cstdint>
#include <string>

namespace melete {

class Schema;

// One rise to the learning rate and one fall to next to nothing, over `decay_steps` (OneCycleLR's
// total_steps).
struct OneCycleConfig {
  double rising_share = 0.3;     // pct_start
  std::string shape = "cosine";  // cosine or linear (anneal_strategy)
  double start_divisor = 25;     // div_factor: it begins with the learning rate over this
  double end_divisor = 1e4;      // final_div_factor: and ends with what it began with over this
  bool three_parts = false;  // three_phase: down to the beginning in the time of the rise, then to the end
  bool cycle_momentum = true;
  double low_momentum = 0.85, high_momentum = 0.95;  // base_momentum, max_momentum
};
void describe(Schema& schema, OneCycleConfig& config);

// Again and again from `minimum` (CyclicLR's base_lr) to the learning rate (its max_lr) and back.
struct CyclicConfig {
  int64_t up_steps = 2000;          // step_size_up
  int64_t down_steps = 0;           // step_size_down; 0: as many as up
  std::string mode = "triangular";  // triangular, triangular2 (half as high each time), exp_range (by gamma)
  double gamma = 1;                 // exp_range: the height's factor a step
  bool cycle_momentum = false;      // PyTorch 1.13 has it for SGD alone, though its default is true
  double low_momentum = 0.8, high_momentum = 0.9;  // base_momentum, max_momentum
};
void describe(Schema& schema, CyclicConfig& config);

struct CyclePoint {
  double rate, momentum;
};

// step counts from 0; after the last of `total_steps` the curve stays where it is.
CyclePoint one_cycle(const OneCycleConfig& config, double learning_rate, int64_t total_steps, int64_t step);
CyclePoint cyclic(const CyclicConfig& config, double low_rate, double learning_rate, int64_t step);

}  // namespace melete
