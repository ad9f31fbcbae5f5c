#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/device.h"

namespace melete {

namespace {

constexpr double kSmall = 1e-20;
constexpr double kGreedyTemperature = 1e-10;
constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

void describe(Schema& s, SamplingConfig& c) {
  s.option("temperature", c.temperature, "below 1: safer, above: wilder; 0: always the likeliest")
      .at_least(0);
  s.option("top_k", c.top_k, "only the k likeliest tokens; 0: as `filter` says").at_least(0);
  s.option("top_p", c.top_p, "of those, the likeliest whose probabilities reach this sum")
      .at_least(0)
      .at_most(1);
  s.option("filter", c.filter, "share of the vocabulary that is never taken, where top_k is 0")
      .at_least(0)
      .at_most(1);
  s.option("guidance", c.guidance, "strength of the condition; 1: no guidance").at_least(0);
}

namespace {

// Of the k likeliest of a row, the one that is highest with its noise. Plain loops: a token of a small model
// takes little longer than two dozen operators.
int64_t sample_row(const float* logits, const float* uniform, int64_t classes, int64_t k, float temperature,
                   std::vector<float>& room) {
  constexpr auto kLittle = static_cast<float>(kSmall);
  const float* broken = std::find_if(logits, logits + classes, [](float x) { return std::isnan(x); });
  if (broken != logits + classes) return broken - logits;  // numbers without an order cannot be sorted
  room.assign(logits, logits + classes);
  std::nth_element(room.begin(), room.begin() + (k - 1), room.end(), std::greater<>());
  const float least = room[static_cast<size_t>(k - 1)];
  int64_t equal = std::count(room.begin(), room.begin() + k, least), best = -1;
  float highest = 0;
  for (int64_t i = 0; i < classes; ++i) {
    if (logits[i] < least || (logits[i] == least && equal-- <= 0)) continue;
    const float noise = -std::log(-std::log(uniform[i] + kLittle) + kLittle);
    const float score = logits[i] / temperature + noise;
    if (best < 0 || score > highest) best = i, highest = score;
  }
  return best;
}

int64_t classes_kept(const SamplingConfig& config, int64_t classes) {
  const auto share = static_cast<int64_t>((1 - config.filter) * static_cast<double>(classes));
  return std::clamp<int64_t>(config.top_k > 0 ? config.top_k : share, 1, classes);
}

}  // namespace

at::Tensor filtered_logits(const at::Tensor& logits, const SamplingConfig& config) {
  const double temperature = std::max(config.temperature, kGreedyTemperature);
  auto [values, ids] = logits.topk(classes_kept(config, logits.size(-1)), -1);  // sorted, likeliest first
  values = values / temperature;
  if (config.top_p < 1) {
    const at::Tensor probabilities = at::softmax(values, -1);
    const at::Tensor before = probabilities.cumsum(-1) - probabilities;
    at::Tensor surplus = before.ge(config.top_p);
    surplus.select(-1, 0).fill_(false);  // one token is always left
    values = values.masked_fill(surplus, kNever);
  }
  return at::full_like(logits, kNever).scatter_(-1, ids, values);
}

at::Tensor sample(const at::Tensor& logits, const SamplingConfig& config, Draws& draws) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const int64_t k = classes_kept(config, classes);
  const double temperature = std::max(config.temperature, kGreedyTemperature);
  const at::Tensor uniform = sent_to(logits.device(), draws.uniform("gumbel", logits.sizes()));
  if (config.top_p >= 1 && logits.device().is_cpu() && logits.scalar_type() == at::kFloat) {
    const at::Tensor given = logits.contiguous(), noise = uniform.to(at::kFloat).contiguous(),
                     ids = at::empty({rows}, at::kLong);
    std::vector<float> room;
    for (int64_t row = 0; row < rows; ++row)
      ids.data_ptr<int64_t>()[row] =
          sample_row(given.data_ptr<float>() + row * classes, noise.data_ptr<float>() + row * classes,
                     classes, k, static_cast<float>(temperature), room);
    return ids;
  }
  const at::Tensor gumbel = (uniform + kSmall).log_().neg_().add_(kSmall).log_().neg_();
  return (filtered_logits(logits, config) + gumbel).argmax(-1);
}

RowDraws::RowDraws(uint64_t seed, std::string_view purpose, int64_t rows, int64_t first_row) {
  for (int64_t row = 0; row < rows; ++row)
    rows_.emplace_back(random_key(seed, purpose, {static_cast<uint64_t>(first_row + row)}));
}

template <class Draw>
at::Tensor RowDraws::by_row(at::IntArrayRef shape, Draw draw) {
  require(!shape.empty() && shape[0] == static_cast<int64_t>(rows_.size()),
          "[sampling] draws for {} rows were asked of {}", shape.empty() ? 0 : shape[0], rows_.size());
  std::vector<at::Tensor> parts;
  for (SeededDraws& row : rows_) parts.push_back(draw(row));
  return at::stack(parts);
}

int64_t RowDraws::integer(std::string_view what, int64_t low, int64_t high) {
  return rows_.front().integer(what, low, high);
}

at::Tensor RowDraws::rows(std::string_view what, int64_t population, int64_t count) {
  return rows_.front().rows(what, population, count);
}

at::Tensor RowDraws::uniform(std::string_view what, at::IntArrayRef shape) {
  return by_row(shape, [&](SeededDraws& row) { return row.uniform(what, shape.slice(1)); });
}

at::Tensor RowDraws::normal(std::string_view what, at::IntArrayRef shape) {
  return by_row(shape, [&](SeededDraws& row) { return row.normal(what, shape.slice(1)); });
}

}  // namespace melete
