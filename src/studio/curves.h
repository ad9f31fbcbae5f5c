// A curve with as many points as a screen can show: of every piece of the way its mean, lowest and highest
// value, so that a spike of one step in 100,000 is still seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace melete {

struct MetricTable;

struct CurveRequest {
  bool by_time = false;              // x: seconds of training; else steps
  double from = -1e300, to = 1e300;  // of x
  int64_t points = 800;
};

struct Curve {
  std::vector<double> x;               // ascending
  std::vector<float> mean, low, high;  // finite
  int64_t not_finite = 0;              // values that no curve can show
};

// column: of the table. Where no more than `points` rows lie in the range, these themselves; of rows with one
// x (steps that were made again after a rollback) the last.
Curve make_curve(const MetricTable& table, const std::vector<float>& column, const CurveRequest& request);

// {"x":[...],"y":[...],"low":[...],"high":[...],"not_finite":0} with no more digits than a plot needs; low
// and high only where they differ from y.
std::string curve_json(const Curve& curve);

}  // namespace melete
