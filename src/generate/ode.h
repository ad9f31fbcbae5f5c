// Ordinary differential equations dx/dt = flow(t, x): how a flow-matching model leads noise to frames.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace melete {

class Schema;

// times float32: [1] where all rows stand at one time, else [rows]; x [rows, ...] -> dx/dt, shaped as x
using Flow = std::function<at::Tensor(const at::Tensor& times, const at::Tensor& x)>;

struct OdeConfig {
  std::string method = "midpoint";  // see generate/runge_kutta.h
  int64_t steps = 16;               // of a method that does not choose its own
  std::string grid = "uniform";     // uniform, epss (Zheng et al. 2025: most steps early)
  std::vector<double> times;        // a grid of one's own, from 0 to 1; empty: as `grid` says
  double sway = 0;                  // t + sway * (cos(pi t / 2) - 1 + t): below 0 more steps are early
  // Of a method that chooses its steps: how far it may be off, beside 0 and as a share of the value.
  double absolute_tolerance = 1e-5, relative_tolerance = 1e-5;
  int64_t most_steps = 10000;
  // One step size for the whole batch that is never lowered after a success; the last step goes past the
  // end and the result is read off a polynomial. Ours: every row has its own steps and ends at the end.
  bool as_torchdiffeq = false;
};
void describe(Schema& schema, OdeConfig& config);

// Where the steps begin and end, rising from 0 to 1.
std::vector<double> time_points(const OdeConfig& config);

struct OdeWork {
  int64_t evaluations = 0;  // of the flow
  int64_t steps = 0;        // taken and rejected; of the slowest row
  int64_t rejected = 0;     // of all rows

  OdeWork& operator+=(const OdeWork& more);
};
struct OdeSolution : OdeWork {
  at::Tensor x;  // at the last time
};
// From the first time to the last; adaptive methods choose what is between.
OdeSolution solve(const Flow& flow, const at::Tensor& start, const std::vector<double>& times,
                  const OdeConfig& config);
OdeSolution solve(const Flow& flow, const at::Tensor& start, const OdeConfig& config);

}  // namespace melete
