// What the names of figures say.
#pragma once

#include <string>

namespace melete {

// "code_use_3": a figure of one quantizer beside the mean of all.
inline bool is_one_of_many(const std::string& name) {
  const size_t sign = name.rfind('_');
  return sign != std::string::npos && sign + 1 < name.size() &&
         name.find_first_not_of("0123456789", sign + 1) == std::string::npos;
}

// "loss" of the only phase, "generator.loss" of one of several.
inline bool is_total_loss(const std::string& name) {
  return name == "loss" || name.ends_with(".loss");
}

}  // namespace melete
