// Reference cases made by running the five systems: what a case holds, and how results are compared with it.
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "nn/draws.h"

namespace melete::golden {

struct Case {
  std::string folder, system, name, kind;  // kind: the `class` of case.json; may be empty
  nlohmann::ordered_json json, config;
  TensorMap weights, io;

  bool has(const std::string& key) const { return io.count(key) > 0; }
  const at::Tensor& get(const std::string& key) const;  // the whole key: "in.wave"
  const at::Tensor& in(const std::string& key) const { return get("in." + key); }
  const at::Tensor& out(const std::string& key) const { return get("out." + key); }
  const at::Tensor& rand(const std::string& key) const { return get("rand." + key); }
  bool says(const std::string& text) const;  // somewhere in `what` or the notes
};

// An Error for a setting that no test here knows: what is left out must not look like what is right.
void expect_only(const nlohmann::ordered_json& settings, const std::set<std::string>& known);
// The same for a trainer, whose settings of data, files and processes mean nothing where batches are
// recorded.
void expect_only_trainer(const nlohmann::ordered_json& settings, std::set<std::string> known);

// A setting that may be left out or null, which both mean the default.
template <class T>
T value_or(const nlohmann::ordered_json& settings, const char* name, T otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() || found->is_null() ? otherwise : found->template get<T>();
}

// The order in which numbered draws were made: "call.2" before "call.10".
bool natural_less(const std::string& a, const std::string& b);

// The tensors whose names start with `prefix`, without it.
TensorMap below(const TensorMap& all, const std::string& prefix);
// The width of text embeddings where a transformer's arguments do not say it: that of its projection.
int64_t text_dim(const TensorMap& weights);

constexpr double kOutputTolerance = 1e-4;
constexpr double kGradientTolerance = 1e-3;

// What a system's cases are held to where a check names nothing else: what their README says, where it is
// less than the above.
struct Tolerances {
  double output = kOutputTolerance, gradient = kGradientTolerance;
};
Tolerances tolerances_of(const std::string& system);

class Checker {
 public:
  explicit Checker(const Tolerances& usual = {}) : usual_(usual) {}

  // Integers must be equal; floats within `relative` of the largest magnitude of `want` (at least 1e-5
  // absolute). Without `relative`: the system's.
  void close(const std::string& label, const at::Tensor& got, const at::Tensor& want,
             std::optional<double> relative = {});
  void gradient(const std::string& label, const at::Tensor& got, const at::Tensor& want,
                std::optional<double> relative = {});
  void fail(const std::string& message);
  void note(const std::string& message);  // shown beside the result

  int64_t compared() const { return compared_; }
  double worst() const { return worst_; }  // as a share of the tolerance that applied
  double worst_relative() const { return worst_relative_; }
  const std::string& worst_label() const { return worst_label_; }
  const std::vector<std::string>& failures() const { return failures_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void compare(const std::string& label, const at::Tensor& got, const at::Tensor& want, double relative,
               double floor);

  Tolerances usual_;
  int64_t compared_ = 0;
  double worst_ = 0, worst_relative_ = 0;
  std::string worst_label_;
  std::vector<std::string> failures_, notes_;
};

using CaseFunction = void (*)(const Case&, Checker&);
// Runs the cases of a system whose `class` is this; where a case has none, those whose folder's name begins
// with it.
bool register_case(const std::string& system, const std::string& kind, CaseFunction function);

// Replays recorded draws in the order in which they were made.
class ReplayDraws : public Draws {
 public:
  // Takes the draws whose key starts with `prefix` ("rand." or "rand.call.03."). `step` picks one dropout
  // index where several steps share one tensor.
  ReplayDraws(const Case& recorded, const std::string& prefix, int64_t step = 0);

  int64_t integer(std::string_view what, int64_t low, int64_t high) override;
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  at::Tensor next_floats(std::string_view what, at::IntArrayRef shape);

  int64_t dropout_index_ = -1;
  std::deque<at::Tensor> rows_, floats_;
  std::deque<at::Tensor> forgetful_, keep_;  // masks of AudioLM's stages, as the draws that give them
};

}  // namespace melete::golden
