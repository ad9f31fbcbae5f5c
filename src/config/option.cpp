// One setting: its value as text and as JSON, and the rules that a new value must keep.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "config/nearest.h"
#include "config/schema.h"
#include "config/wrap.h"
#include "core/base/error.h"

namespace melete {
namespace {

using nlohmann::ordered_json;

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
struct is_list : std::false_type {};
template <class T>
struct is_list<std::vector<T>> : std::true_type {};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (code < 0x20 || code == 0x7f)
      out += fmt::format("\\u{:04x}", code);
    else
      out += c;
  }
  return out + '"';
}

std::string value_text(bool value) {
  return value ? "true" : "false";
}
std::string value_text(int64_t value) {
  return fmt::format("{}", value);
}
std::string value_text(const std::string& value) {
  return quoted(value);
}
std::string value_text(double value) {
  std::string out = fmt::format("{}", value);  // the shortest digits that read back as the same number
  return out.find_first_not_of("-0123456789") == std::string::npos ? out + ".0" : out;
}
template <class T>
std::string value_text(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values) out += (out.empty() ? "" : ", ") + value_text(value);
  return "[" + out + "]";
}

template <class T>
std::string kind_of() {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "integer";
  else if constexpr (std::is_same_v<T, double>)
    return "number";
  else if constexpr (std::is_same_v<T, std::string>)
    return "text";
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return "list of integers";
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return "list of numbers";
  else
    return "list of texts";
}

std::string what_came(const ordered_json& value) {
  if (value.is_null()) return "nothing (null)";
  if (value.is_object()) return "a table";
  const std::string text = shortened(value.dump(-1, ' ', false, nlohmann::detail::error_handler_t::replace));
  if (value.is_boolean()) return text;
  if (value.is_array()) return "list " + text;
  if (value.is_string()) return "text " + text;
  if (value.is_number_float()) return "number " + fmt::format("{}", value.get<double>());
  return "integer " + text;
}

// ---- JSON -> value; nothing when the kind is wrong
// ----------------------------------------------------------------

template <class T>
std::optional<T> from_json(const ordered_json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value.is_boolean()) return value.get<bool>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return static_cast<int64_t>(number);
    } else if (value.is_number_integer()) {
      return value.get<int64_t>();
    } else if (value.is_number_float()) {  // 1e6 is a fair way to write a count; 0.5 is not one
      const auto number = value.get<double>();
      if (std::trunc(number) == number && std::abs(number) < 0x1p63) return static_cast<int64_t>(number);
    }
  } else if constexpr (std::is_same_v<T, double>) {
    // Infinity and NaN have no JSON form, so a checkpoint could not store them.
    if (value.is_number() && std::isfinite(value.get<double>())) return value.get<double>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (value.is_string()) return value.get<std::string>();
  } else {
    T out;
    const auto add = [&](const ordered_json& item) {
      auto element = from_json<typename T::value_type>(item);
      if (element) out.push_back(std::move(*element));
      return element.has_value();
    };
    if (!value.is_array()) return add(value) ? std::optional<T>(out) : std::nullopt;
    for (const ordered_json& item : value) {
      if (!add(item)) return std::nullopt;
    }
    return out;
  }
  return std::nullopt;
}

// ---- words of a command line -> value
// -----------------------------------------------------------------------------

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// 100_000 reads as in TOML: an underscore may stand between two digits.
std::string without_separators(const std::string& text) {
  const auto digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]));
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out += text[i];
  }
  return out;
}

template <class T>
std::optional<T> number_from_text(const std::string& text) {
  const std::string digits = without_separators(trimmed(text));
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  if (begin + 1 < end && *begin == '+' && begin[1] != '-') ++begin;
  T value{};
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string unquoted(const std::string& text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return text;
  const ordered_json parsed = ordered_json::parse(text, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : text;
}

// "a, b" and ["a", "b"] alike; commas inside double quotes belong to the text.
std::vector<std::string> split_list(const std::string& text) {
  std::string inner = trimmed(text);
  if (inner.size() >= 2 && inner.front() == '[' && inner.back() == ']')
    inner = inner.substr(1, inner.size() - 2);
  std::vector<std::string> items;
  if (trimmed(inner).empty()) return items;
  std::string item;
  bool in_quotes = false;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (in_quotes && inner[i] == '\\' && i + 1 < inner.size())
      item += inner[i++];
    else if (inner[i] == '"')
      in_quotes = !in_quotes;
    if (inner[i] == ',' && !in_quotes)
      items.push_back(trimmed(std::exchange(item, "")));
    else
      item += inner[i];
  }
  items.push_back(trimmed(item));
  return items;
}

template <class T>
std::optional<T> from_text(const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::string word = trimmed(text);
    if (word == "true" || word == "on" || word == "yes" || word == "1") return true;
    if (word == "false" || word == "off" || word == "no" || word == "0") return false;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (const auto whole = number_from_text<int64_t>(text)) return whole;
    if (const auto number = number_from_text<double>(text)) return from_json<int64_t>(*number);
  } else if constexpr (std::is_same_v<T, double>) {
    const auto number = number_from_text<double>(text);
    if (number && std::isfinite(*number)) return number;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return unquoted(text);
  } else {
    T out;
    for (const std::string& item : split_list(text)) {
      auto element = from_text<typename T::value_type>(item);
      if (!element) return std::nullopt;
      out.push_back(std::move(*element));
    }
    return out;
  }
  return std::nullopt;
}

std::string limit_text(double value) {
  return std::abs(value) < 1e15 && std::trunc(value) == value ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

// A value that breaks a rule is put back, so that a caller may report the error and go on.
template <class T>
void assign(const Option& option, T& target, T value) {
  std::swap(target, value);
  try {
    option.check();
  } catch (...) {
    std::swap(target, value);
    throw;
  }
}

}  // namespace

Option::Option(std::string name, Target target, std::string help)
    : name_(std::move(name)), help_(std::move(help)), target_(target), low_(-infinity), high_(infinity) {
  default_text_ = text();
}

Option& Option::at_least(double low) {
  low_ = low;
  return *this;
}

Option& Option::at_most(double high) {
  high_ = high;
  return *this;
}

Option& Option::one_of(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return *this;
}

Option& Option::kept(std::string checkpoint_name, std::string& bytes) {
  kept_name_ = std::move(checkpoint_name);
  kept_bytes_ = &bytes;
  return *this;
}

Option& Option::unit(std::string unit) {
  unit_ = std::move(unit);
  return *this;
}

bool Option::shown() const {
  return changed() || choice_ == nullptr ||
         std::find(in_use_for_.begin(), in_use_for_.end(), *choice_) != in_use_for_.end();
}

std::string Option::type_name() const {
  return std::visit([](auto* value) { return kind_of<std::remove_pointer_t<decltype(value)>>(); }, target_);
}

std::string Option::limits_text() const {
  if (!choices_.empty()) {
    std::string out;
    for (const std::string& choice : choices_) out += (out.empty() ? "" : ", ") + choice;
    return "one of " + out;
  }
  if (low_ > -infinity && high_ < infinity) return limit_text(low_) + " to " + limit_text(high_);
  if (low_ > -infinity) return "at least " + limit_text(low_);
  if (high_ < infinity) return "at most " + limit_text(high_);
  return "";
}

std::string Option::text() const {
  return std::visit([](auto* value) { return value_text(*value); }, target_);
}

ordered_json Option::json() const {
  return std::visit([](auto* value) { return ordered_json(*value); }, target_);
}

void Option::set_text(const std::string& text) {
  std::visit(
      [&](auto* target) {
        using T = std::remove_pointer_t<decltype(target)>;
        std::optional<T> value = from_text<T>(text);
        require(value.has_value(), "[{}] expected {}, got '{}'", name_, kind_of<T>(), shortened(text));
        assign(*this, *target, std::move(*value));
      },
      target_);
}

void Option::set_json(const ordered_json& json) {
  std::visit(
      [&](auto* target) {
        using T = std::remove_pointer_t<decltype(target)>;
        std::optional<T> value = from_json<T>(json);
        require(value.has_value(), "[{}] expected {}, got {}", name_, kind_of<T>(), what_came(json));
        assign(*this, *target, std::move(*value));
      },
      target_);
}

void Option::check() const {
  const auto check_one = [&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      if (choices_.empty()) return;
      for (const std::string& choice : choices_) {
        if (choice == value) return;
      }
      fail("[{}] expected {}, got '{}'; did you mean '{}'?", name_, limits_text(), shortened(value),
           nearest_word(value, choices_));
    } else if constexpr (!std::is_same_v<T, bool>) {
      const auto number = static_cast<double>(value);
      require(number >= low_ && number <= high_, "[{}] expected {}{}{}, got {}", name_, limits_text(),
              unit_.empty() ? "" : " ", unit_, value_text(value));
    }
  };
  std::visit(
      [&](auto* target) {
        if constexpr (is_list<std::remove_pointer_t<decltype(target)>>::value) {
          for (const auto& element : *target) check_one(element);
        } else {
          check_one(*target);
        }
      },
      target_);
}

}  // namespace melete
