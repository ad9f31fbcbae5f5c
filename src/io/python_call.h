// A constructor's arguments as a person would write them in Python.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace melete {

// `Name(dim = 512, causal = True)`; lists are written as tuples.
inline std::string python_call(const std::string& name, const nlohmann::ordered_json& arguments) {
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    std::string python = value.dump();
    if (value.is_boolean()) python = value.get<bool>() ? "True" : "False";
    if (value.is_null()) python = "None";
    if (value.is_array()) python = "(" + python.substr(1, python.size() - 2) + ")";
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, python);
  }
  return fmt::format("{}({})", name, text);
}

}  // namespace melete
