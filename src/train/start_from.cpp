#include "train/start_from.h"

#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr size_t kNamesShown = 8;

std::string some_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<int64_t>(std::min(names.size(), kNamesShown)));
  return fmt::format(
      "{}{}", fmt::join(first, ", "),
      names.size() > kNamesShown ? fmt::format(" and {} more", names.size() - kNamesShown) : "");
}

FoundCheckpoint checkpoint_of_step(const std::string& folder, int64_t step) {
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(folder)) {
    if (entry.step == step) return {entry.path, load_checkpoint(entry.path)};
    steps.push_back(entry.step);
  }
  fail("[from_step] {} has no checkpoint of step {}; it has: {}", folder, step, fmt::join(steps, ", "));
}

}  // namespace

StartWeights open_start(const StartFrom& from) {
  if (from.step == 0) return {open_checkpoint(from.path, "from"), from.parts, from.partly};
  require(std::filesystem::is_directory(from.path), "[from_step] {} is no run folder", from.path);
  return {checkpoint_of_step(from.path, from.step), from.parts, from.partly};
}

void StartWeights::apply_settings(const Recipe& recipe, Schema& schema) const {
  const auto& meta = found.checkpoint.meta;
  const std::string task = meta.value("task", "");
  require(recipe.can_start_from(task), "[from] {} is a checkpoint of `{}`, which `{}` cannot start from",
          found.path, task, recipe.name());
  const auto config = meta.find("config");
  if (config != meta.end() && config->contains("model")) schema.apply({{"model", config->at("model")}});
}

std::string StartWeights::load(torch::nn::Module& model) const {
  const at::NoGradGuard no_grad;
  const TensorMap& tensors = found.checkpoint.tensors;
  const auto wanted = [&](const std::string& name) {
    return parts.empty() || std::any_of(parts.begin(), parts.end(),
                                        [&](const std::string& part) { return name.starts_with(part); });
  };
  std::vector<std::string> missing, unknown;
  int64_t loaded = 0;
  TensorMap own;
  for (const auto& item : model.named_parameters()) own.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) own.emplace(item.key(), item.value());
  for (auto& [name, tensor] : own) {
    if (!wanted(name)) continue;
    auto stored = tensors.find("ema.average." + name);
    if (stored == tensors.end()) stored = tensors.find("model." + name);
    if (stored == tensors.end()) {
      missing.push_back(name);
      continue;
    }
    require(stored->second.sizes() == tensor.sizes(),
            "[from] {} is [{}] in {} and [{}] here; leave it out with from_parts", name,
            fmt::join(stored->second.sizes(), ", "), found.path, fmt::join(tensor.sizes(), ", "));
    at::Tensor(tensor).copy_(stored->second);
    ++loaded;
  }
  for (const auto& [name, tensor] : found.checkpoint.part("model."))
    if (wanted(name) && own.count(name) == 0) unknown.push_back(name);
  require(partly || missing.empty(),
          "[from] {} lacks {} of the model's weights: {}; name the parts to take with "
          "from_parts, or pass them over with from_partly",
          found.path, missing.size(), some_of(missing));
  require(partly || unknown.empty(),
          "[from] {} has {} weights that the model does not: {}; name the parts to take with "
          "from_parts, or pass them over with from_partly",
          found.path, unknown.size(), some_of(unknown));
  require(loaded > 0, "[from] none of the weights of {} fit; parts of the model begin with: {}", found.path,
          own.empty() ? "nothing" : own.begin()->first);
  return fmt::format(
      "starts from {}: {} weights{}", found.path, loaded,
      missing.empty() && unknown.empty()
          ? ""
          : fmt::format(", {} were not there, {} were passed over", missing.size(), unknown.size()));
}

}  // namespace melete
