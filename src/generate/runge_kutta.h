// Runge-Kutta methods as tables (Butcher tableaus), from Euler's to Dormand and Prince's of order 8.
#pragma once

#include <string>
#include <vector>

namespace melete {

struct RungeKutta {
  int order = 1;
  std::vector<double> nodes;                // when a stage looks, as a share of the step; the first is at 0
  std::vector<std::vector<double>> stages;  // weights of the slopes before it: none, one, two, ...
  std::vector<double> solution;             // weights of all slopes in the step
  // Of methods that choose their own steps; empty for others.
  std::vector<double> error;   // weights whose sum is how far a lower order's step is away
  std::vector<double> middle;  // weights of the solution at half the step

  bool adaptive() const { return !error.empty(); }
  // The last slope is that at the end of the step, so the next step need not ask for it.
  bool ends_with_slope() const { return nodes.back() == 1 && stages.back() == leading(solution); }

 private:
  static std::vector<double> leading(const std::vector<double>& weights) {
    return weights.back() == 0 ? std::vector<double>(weights.begin(), weights.end() - 1)
                               : std::vector<double>();
  }
};

// euler, midpoint, heun2, heun3, rk4 (Kutta's 3/8 rule); adaptive_heun, fehlberg2, bosh3, dopri5, tsit5,
// dopri8. An unknown name is an Error.
const RungeKutta& runge_kutta(const std::string& name);
const std::vector<std::string>& runge_kutta_names();

}  // namespace melete
