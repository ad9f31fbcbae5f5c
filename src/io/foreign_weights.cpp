#include "io/foreign_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"

namespace melete {

namespace {

struct NormSpelling {
  std::string length, direction;
};
const NormSpelling kSpellings[] = {
    {"weight_g", "weight_v"}, {"parametrizations.weight.original0", "parametrizations.weight.original1"}};

// The length says by its shape which dimensions the norm was taken over: those where it has size 1.
at::Tensor folded(const at::Tensor& length, const at::Tensor& direction, const std::string& name) {
  require(length.dim() == direction.dim(), "[import] `{}`: its length has {} dimensions, its direction {}",
          name, length.dim(), direction.dim());
  std::vector<int64_t> over;
  for (int64_t i = 0; i < length.dim(); ++i) {
    require(length.size(i) == 1 || length.size(i) == direction.size(i),
            "[import] `{}`: length [{}] and direction [{}] do not fit together", name,
            fmt::join(length.sizes(), ", "), fmt::join(direction.sizes(), ", "));
    if (length.size(i) == 1) over.push_back(i);
  }
  const at::Tensor wide = direction.to(at::kDouble);
  const at::Tensor norm = over.empty() ? wide.abs() : wide.square().sum(over, true).sqrt();
  return (wide * (length.to(at::kDouble) / norm)).to(at::kFloat);
}

}  // namespace

TensorMap fold_weight_norm(const TensorMap& weights) {
  TensorMap result;
  for (const auto& [name, tensor] : weights) {
    bool plain = true;
    for (const NormSpelling& spelling : kSpellings) {
      if (name.ends_with("." + spelling.direction)) {
        const std::string stem = name.substr(0, name.size() - spelling.direction.size());
        const auto length = weights.find(stem + spelling.length);
        require(length != weights.end(), "[import] `{}` has no `{}{}` beside it", name, stem,
                spelling.length);
        result[stem + "weight"] = folded(length->second, tensor, stem + "weight");
        plain = false;
      } else if (name.ends_with("." + spelling.length)) {
        plain = false;
      }
    }
    if (plain) result.emplace(name, tensor);
  }
  return result;
}

TensorMap without_prefix(const TensorMap& weights, const std::string& prefix) {
  TensorMap result;
  for (const auto& [name, tensor] : weights)
    result.emplace(name.starts_with(prefix) ? name.substr(prefix.size()) : name, tensor);
  return result;
}

const at::Tensor* find_weight(const TensorMap& weights, const std::string& name) {
  const auto found = weights.find(name);
  return found == weights.end() ? nullptr : &found->second;
}

int64_t weight_size(const TensorMap& weights, const std::string& name, int64_t dimension,
                    const std::string& where) {
  const at::Tensor* tensor = find_weight(weights, name);
  require(tensor != nullptr, "[{}] the file has no `{}`", where, name);
  require(dimension < tensor->dim(), "[{}] `{}` has {} dimensions", where, name, tensor->dim());
  require(tensor->size(dimension) > 0, "[{}] `{}` is empty", where, name);
  return tensor->size(dimension);
}

int64_t numbered_below(const TensorMap& weights, const std::string& prefix) {
  int64_t count = 0;
  for (auto at = weights.lower_bound(prefix); at != weights.end() && at->first.starts_with(prefix); ++at) {
    const std::string rest = at->first.substr(prefix.size());
    const size_t dot = rest.find('.');
    if (dot == 0 || dot == std::string::npos || dot > 4 ||
        rest.substr(0, dot).find_first_not_of("0123456789") != std::string::npos)
      continue;
    count = std::max(count, static_cast<int64_t>(std::stoll(rest.substr(0, dot))) + 1);
  }
  return count;
}

TensorMap translate(const torch::nn::Module& module, const ForeignNames& names, const TensorMap& theirs,
                    const std::function<bool(const std::string&)>& ignored, const std::string& where) {
  TensorMap result;
  std::set<std::string> used;
  const auto add = [&](const std::string& ours, const at::Tensor& like) {
    std::vector<at::Tensor> parts;
    for (const std::string& name : names(ours)) {
      const auto found = theirs.find(name);
      require(found != theirs.end(), "[{}] has no `{}` (ours: `{}`)", where, name, ours);
      parts.push_back(found->second.to(at::kFloat));
      used.insert(name);
    }
    const at::Tensor whole = parts.size() == 1 ? parts.front() : at::cat(parts, 0);
    require(whole.numel() == like.numel(), "[{}] `{}` has {} values, expected [{}]", where,
            names(ours).front(), whole.numel(), fmt::join(like.sizes(), ", "));
    result.emplace(ours, whole.reshape(like.sizes()));
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  for (const auto& [name, tensor] : theirs)
    require(used.count(name) > 0 || ignored(name), "[{}] has `{}`, which this model does not know", where,
            name);
  return result;
}

}  // namespace melete
