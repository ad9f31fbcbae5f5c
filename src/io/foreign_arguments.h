// Foreign constructor arguments into our configurations.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"

namespace melete {

using ArgumentSetters = std::map<std::string, std::function<void(const nlohmann::ordered_json&)>>;

template <class T>
std::function<void(const nlohmann::ordered_json&)> argument_to(T& target) {
  return [&target](const nlohmann::ordered_json& value) { target = value.get<T>(); };
}

// Null stands for the default; an argument without a setter is an Error.
inline void apply_arguments(const nlohmann::ordered_json& arguments, const ArgumentSetters& setters,
                            const std::string& system, const std::string& what) {
  if (arguments.is_null()) return;
  for (const auto& [key, value] : arguments.items()) {
    const auto setter = setters.find(key);
    require(setter != setters.end(), "[{}] {} has no argument `{}` that melete knows", system, what, key);
    if (!value.is_null()) setter->second(value);
  }
}

}  // namespace melete
