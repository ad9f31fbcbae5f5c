#include "studio/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "studio/run_metrics.h"

namespace melete {

namespace {

struct Bucket {
  double x = 0, sum = 0;
  float low = 0, high = 0;
  int64_t count = 0;

  void add(double at, float value) {
    low = count == 0 ? value : std::min(low, value);
    high = count == 0 ? value : std::max(high, value);
    x += at;
    sum += value;
    ++count;
  }
};

template <class Values>
void append_list(std::string& out, const char* name, const Values& values, const char* digits) {
  fmt::format_to(std::back_inserter(out), "\"{}\":[", name);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), fmt::runtime(digits), values[i]);
  }
  out += ']';
}

}  // namespace

Curve make_curve(const MetricTable& table, const std::vector<float>& column, const CurveRequest& request) {
  Curve curve;
  const size_t rows = std::min(table.rows(), column.size());
  const auto x_of = [&](size_t row) {
    return request.by_time ? table.seconds[row] : static_cast<double>(table.steps[row]);
  };
  std::vector<size_t> chosen;
  double first = 1e300, last = -1e300;
  for (size_t row = 0; row < rows; ++row) {
    const double x = x_of(row);
    if (x < request.from || x > request.to) continue;
    if (std::isnan(column[row])) continue;  // a row without this value
    if (!std::isfinite(column[row])) {
      ++curve.not_finite;
      continue;
    }
    chosen.push_back(row);
    first = std::min(first, x);
    last = std::max(last, x);
  }
  if (chosen.empty()) return curve;
  const auto points = static_cast<size_t>(std::clamp<int64_t>(request.points, 2, 20000));
  if (chosen.size() <= points) {
    std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) { return x_of(a) < x_of(b); });
    for (const size_t row : chosen) {
      const double x = x_of(row);
      if (!curve.x.empty() && curve.x.back() == x) {
        curve.mean.back() = curve.low.back() = curve.high.back() = column[row];
        continue;
      }
      curve.x.push_back(x);
      for (auto* values : {&curve.mean, &curve.low, &curve.high}) values->push_back(column[row]);
    }
    return curve;
  }
  std::vector<Bucket> buckets(points);
  const double width = (last - first) / static_cast<double>(points);
  for (const size_t row : chosen) {
    const double x = x_of(row);
    const auto place = width > 0 ? static_cast<size_t>((x - first) / width) : 0;
    buckets[std::min(place, points - 1)].add(x, column[row]);
  }
  for (const Bucket& bucket : buckets) {
    if (bucket.count == 0) continue;
    const auto count = static_cast<double>(bucket.count);
    curve.x.push_back(bucket.x / count);
    curve.mean.push_back(static_cast<float>(bucket.sum / count));
    curve.low.push_back(bucket.low);
    curve.high.push_back(bucket.high);
  }
  return curve;
}

std::string curve_json(const Curve& curve) {
  std::string out = "{";
  append_list(out, "x", curve.x, "{:.9g}");
  out += ',';
  append_list(out, "y", curve.mean, "{:.6g}");
  if (curve.low != curve.mean || curve.high != curve.mean) {
    out += ',';
    append_list(out, "low", curve.low, "{:.6g}");
    out += ',';
    append_list(out, "high", curve.high, "{:.6g}");
  }
  fmt::format_to(std::back_inserter(out), ",\"not_finite\":{}}}", curve.not_finite);
  return out;
}

}  // namespace melete
