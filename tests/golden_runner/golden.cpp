#include "golden.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/base/error.h"

namespace melete::golden {

// "call.2" before "call.10"
bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (std::isdigit(static_cast<unsigned char>(a[i])) && std::isdigit(static_cast<unsigned char>(b[j]))) {
      size_t read_a = 0, read_b = 0;
      const auto x = std::stoull(a.substr(i), &read_a), y = std::stoull(b.substr(j), &read_b);
      if (x != y) return x < y;
      i += read_a;
      j += read_b;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

const at::Tensor& Case::get(const std::string& key) const {
  const auto found = io.find(key);
  require(found != io.end(), "the case has no `{}`", key);
  return found->second;
}

bool Case::says(const std::string& text) const {
  if (json.value("what", "").find(text) != std::string::npos) return true;
  if (!json.contains("notes")) return false;
  return std::any_of(json["notes"].begin(), json["notes"].end(), [&](const auto& note) {
    return note.template get<std::string>().find(text) != std::string::npos;
  });
}

Tolerances tolerances_of(const std::string& system) {
  if (system == "spear-tts") return {2e-5, 1e-4};
  return {};
}

void Checker::close(const std::string& label, const at::Tensor& got, const at::Tensor& want,
                    std::optional<double> relative) {
  compare(label, got, want, relative.value_or(usual_.output), 1e-5);
}

void Checker::gradient(const std::string& label, const at::Tensor& got, const at::Tensor& want,
                       std::optional<double> relative) {
  if (!got.defined()) return fail(label + ": no gradient");
  compare(label, got, want, relative.value_or(usual_.gradient), 1e-7);
}

void Checker::fail(const std::string& message) {
  failures_.push_back(message);
}

void Checker::note(const std::string& message) {
  notes_.push_back(message);
}

void Checker::compare(const std::string& label, const at::Tensor& got, const at::Tensor& want,
                      double relative, double floor) {
  ++compared_;
  if (got.sizes() != want.sizes()) {
    return fail(fmt::format("{}: shape [{}], expected [{}]", label, fmt::join(got.sizes(), ", "),
                            fmt::join(want.sizes(), ", ")));
  }
  if (want.numel() == 0) return;
  const at::Tensor a = got.detach().to(at::kDouble), b = want.to(at::kDouble);
  if (!at::isFloatingType(want.scalar_type())) {
    const auto different = (a != b).sum().item<int64_t>();
    if (different > 0) fail(fmt::format("{}: {} of {} integers differ", label, different, want.numel()));
    return;
  }
  const double difference = (a - b).abs().max().item<double>();
  const double largest = b.abs().max().item<double>();
  const double allowed = std::max(relative * largest, floor);
  if (!(difference <= allowed))
    fail(fmt::format("{}: off by {:.3g}, allowed {:.3g} (largest value {:.3g})", label, difference, allowed,
                     largest));
  if (difference / allowed > worst_) {
    worst_ = difference / allowed;
    worst_relative_ = largest > 0 ? difference / largest : difference;
    worst_label_ = label;
  }
}

void expect_only(const nlohmann::ordered_json& settings, const std::set<std::string>& known) {
  for (const auto& item : settings.items())
    require(known.count(item.key()) > 0, "[golden] the setting {} is not known here", item.key());
}

void expect_only_trainer(const nlohmann::ordered_json& settings, std::set<std::string> known) {
  known.insert({"batch_size", "data_max_length", "data_max_length_seconds", "folder", "results_folder",
                "valid_frac", "random_split_seed", "save_results_every", "save_model_every", "drop_last",
                "dataloader_drop_last", "dl_num_workers", "accelerate_kwargs", "split_batches",
                "init_process_group_timeout_seconds", "use_wandb_tracking", "force_clear_prev_results"});
  expect_only(settings, known);
}

TensorMap below(const TensorMap& all, const std::string& prefix) {
  TensorMap part;
  for (const auto& [name, tensor] : all)
    if (name.starts_with(prefix)) part[name.substr(prefix.size())] = tensor;
  return part;
}

int64_t text_dim(const TensorMap& weights) {
  const auto found = weights.find("proj_text_embed.weight");
  return found == weights.end() ? 24 : found->second.size(1);  // 24: what the recorded runs took T5's to be
}

ReplayDraws::ReplayDraws(const Case& recorded, const std::string& prefix, int64_t step) {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : recorded.io)
    if (key.starts_with(prefix)) keys.push_back(key);
  std::sort(keys.begin(), keys.end(), natural_less);
  for (const std::string& key : keys) {
    const at::Tensor& tensor = recorded.get(key);
    if (key.ends_with("quantize_dropout_index")) {
      if (tensor.numel() > 0)
        dropout_index_ = tensor.flatten()[std::min(step, tensor.numel() - 1)].item<int64_t>();
    } else if (key.find("forgetful_mask") != std::string::npos) {
      forgetful_.push_back(tensor.logical_not().to(at::kFloat));  // what is hidden has the largest draws
    } else if (key.find("cond_keep_mask") != std::string::npos) {
      keep_.push_back(tensor.logical_not().to(at::kFloat));  // what is kept has the smallest
    } else if (tensor.scalar_type() == at::kLong) {
      rows_.push_back(tensor);
    } else {
      floats_.push_back(tensor);
    }
  }
}

int64_t ReplayDraws::integer(std::string_view what, int64_t low, int64_t high) {
  require(dropout_index_ >= low && dropout_index_ < high, "no recorded draw for {} in [{}, {})", what, low,
          high);
  return dropout_index_;
}

at::Tensor ReplayDraws::rows(std::string_view what, int64_t population, int64_t count) {
  require(!rows_.empty(), "no recorded draw left for {} of {} rows out of {}", what, count, population);
  const at::Tensor rows = rows_.front();
  rows_.pop_front();
  require(rows.numel() == count, "the recorded draw for {} has {} rows, wanted {}", what, rows.numel(),
          count);
  return rows;
}

at::Tensor ReplayDraws::next_floats(std::string_view what, at::IntArrayRef shape) {
  auto& queue = what == "forgetful_mask" ? forgetful_ : what == "keep_condition" ? keep_ : floats_;
  require(!queue.empty(), "no recorded draw left for {}", what);
  const at::Tensor values = queue.front();
  queue.pop_front();
  return values.reshape(shape);
}

at::Tensor ReplayDraws::uniform(std::string_view what, at::IntArrayRef shape) {
  return next_floats(what, shape);
}

at::Tensor ReplayDraws::normal(std::string_view what, at::IntArrayRef shape) {
  return next_floats(what, shape);
}

}  // namespace melete::golden
