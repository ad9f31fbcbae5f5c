// The name under which token folders, stages and files remember the model that made them: a hash of its kind,
// its settings and its weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "io/tensors.h"

namespace melete {

// Of a kind, its settings and its tensors with their names.
std::string identity_of(const std::string& kind, const nlohmann::ordered_json& settings,
                        const TensorMap& tensors);

// Dotted names ("quantizer.affine") of settings that came after the first identities of a model. A younger
// setting counts only where it differs from its default, so that adding one orphans nothing that names the
// model. A default must therefore be what the model did before the setting was there, and never change.
using YoungerSettings = std::vector<std::string>;

// `settings` without the younger ones that are as in `defaults`.
nlohmann::ordered_json identifying_settings(nlohmann::ordered_json settings,
                                            const nlohmann::ordered_json& defaults,
                                            const YoungerSettings& younger);

template <class Config>
std::string identity_of_model(const std::string& kind, Config config, const TensorMap& tensors,
                              const YoungerSettings& younger = {}) {
  Config plain;
  return identity_of(kind, identifying_settings(schema_of(config).json(), schema_of(plain).json(), younger),
                     tensors);
}

}  // namespace melete
