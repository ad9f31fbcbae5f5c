// What all that read or write foreign weights share.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tensors.h"

namespace melete {

// Every weight that is stored as a length and a direction (weight_g and weight_v, or the newer
// parametrizations.weight.original0 and 1) becomes the plain weight. Others stay as they are.
TensorMap fold_weight_norm(const TensorMap& weights);

// Names without a prefix that all of them have ("hubert."); unchanged where none has it.
TensorMap without_prefix(const TensorMap& weights, const std::string& prefix);

// One tensor by our name and by theirs.
struct NamedPair {
  std::string ours, theirs;
  at::Tensor tensor;  // ours
};

// What the shapes of a foreign model's weights tell about it.
const at::Tensor* find_weight(const TensorMap& weights, const std::string& name);  // nullptr: none
// An Error that begins with [where] says that the weight is missing, has fewer dimensions, or is empty there.
int64_t weight_size(const TensorMap& weights, const std::string& name, int64_t dimension,
                    const std::string& where);
// The largest N of names like "rq.rvqs.0.layers.N.", plus one.
int64_t numbered_below(const TensorMap& weights, const std::string& prefix);

// The names in a foreign file that one of our tensors is made of, one below the other.
using ForeignNames = std::function<std::vector<std::string>(const std::string& ours)>;

// Our module's tensors, by our names, from a foreign file. Missing and misshapen tensors are Errors that name
// `where`; so are superfluous ones unless `ignored` says that they belong to parts that we do not use.
TensorMap translate(const torch::nn::Module& module, const ForeignNames& names, const TensorMap& theirs,
                    const std::function<bool(const std::string&)>& ignored, const std::string& where);

// Reads the keys of a foreign configuration that mean something to us, and nothing else of it.
template <class T>
void take(const nlohmann::ordered_json& from, const char* key, T& to) {
  const auto found = from.find(key);
  if (found != from.end() && !found->is_null()) to = found->template get<T>();
}

}  // namespace melete
