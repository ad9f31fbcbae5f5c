#include "config/schema.h"

#include <algorithm>

#include "config/nearest.h"
#include "config/toml_file.h"
#include "config/wrap.h"
#include "core/base/error.h"

namespace melete {
namespace {

using nlohmann::ordered_json;

std::string section_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string last_part(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

// Calls start(section, help) once for every section that has options of its own among those that are wanted,
// then each(option).
template <class Wanted, class Start, class Each>
void for_each_group(const Schema& schema, const Wanted& wanted, const Start& start, const Each& each) {
  std::vector<std::pair<std::string, std::string>> groups{{"", ""}};
  groups.insert(groups.end(), schema.sections().begin(), schema.sections().end());
  for (const Option& option : schema.options()) {  // a dotted name may stand without a declared section
    const std::string section = section_of(option.name());
    const auto same = [&](const auto& group) { return group.first == section; };
    if (std::none_of(groups.begin(), groups.end(), same)) groups.emplace_back(section, "");
  }
  for (const auto& [section, help] : groups) {
    bool started = false;
    for (const Option& option : schema.options()) {
      if (section_of(option.name()) != section || !wanted(option)) continue;
      if (!started) start(section, help);
      started = true;
      each(option);
    }
  }
}

}  // namespace

Option& Schema::add(std::string name, Target target, std::string help) {
  require(name != "include",
          "[include] is what a recipe says to read another file; name the setting otherwise");
  require(find(name) == nullptr && !is_section(name), "[{}] is described twice", name);
  return options_.emplace_back(std::move(name), target, std::move(help));
}

void Schema::add_section(const std::string& name, const std::string& help) {
  require(find(name) == nullptr && !is_section(name), "[{}] is described twice", name);
  sections_.emplace_back(name, help);
}

void Schema::only_for(const std::string& name, const std::string& choice,
                      const std::vector<std::string>& values) {
  for (Option& option : options_)
    if (option.name() == prefix_ + name || option.name().starts_with(prefix_ + name + ".")) {
      option.choice_ = &choice;
      option.in_use_for_ = values;
    }
}

bool Schema::is_section(const std::string& name) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&](const auto& section) { return section.first == name; });
}

Option* Schema::find(const std::string& name) {
  for (Option& option : options_) {
    if (option.name() == name) return &option;
  }
  return nullptr;
}

const Option* Schema::find(const std::string& name) const {
  return const_cast<Schema*>(this)->find(name);
}

std::string Schema::nearest(const std::string& name) const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name());
  return nearest_dotted_name(name, names);
}

void Schema::fail_unknown(const std::string& whole_name) const {
  const std::string name = shortened(whole_name, 120);
  require(!options_.empty(), "[{}] is not a setting; there are none here", name);
  require(!is_section(name), "[{}] is a group of settings, not a setting; did you mean '{}'?", name,
          nearest(name + "."));
  fail("[{}] is not a setting; did you mean '{}'?", name, nearest(name));
}

void Schema::set(const std::string& name, const std::string& text) {
  Option* option = find(name);
  if (!option) fail_unknown(name);
  option->set_text(text);
}

void Schema::apply(const ordered_json& nested) {
  require(nested.is_object(), "[settings] expected a table of settings, got {}", nested.type_name());
  apply(nested, "", {});
}

void Schema::apply_file(const std::string& toml_path) {
  for (const TomlFile& file : read_toml(toml_path)) {
    apply(file.values, "", [&](const std::string& key) { return file.where(key); });
  }
}

void Schema::apply(const ordered_json& nested, const std::string& prefix,
                   const std::function<std::string(const std::string&)>& where) {
  for (const auto& [key, value] : nested.items()) {
    const std::string name = prefix + key;
    Option* option = find(name);
    // An unknown table is looked into, so that the message names the whole key that was written.
    if (!option && value.is_object() && (is_section(name) || !value.empty())) {
      apply(value, name + ".", where);
      continue;
    }
    try {
      if (!option) fail_unknown(name);
      option->set_json(value);
    } catch (const Error& error) {
      if (!where) throw;
      fail("{}: {}", where(name), error.what());
    }
  }
}

void Schema::check() const {
  for (const Option& option : options_) option.check();
}

ordered_json Schema::json() const {
  ordered_json out = ordered_json::object();
  for (const Option& option : options_) {
    ordered_json* place = &out;
    std::string rest = option.name();
    for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
      place = &(*place)[rest.substr(0, dot)];
    }
    (*place)[rest] = option.json();
  }
  return out;
}

std::string Schema::table() const {
  const auto indent = [](const Option& option) { return section_of(option.name()).empty() ? 0 : 2; };
  size_t name_width = 0;
  bool any_changed = false;
  for (const Option& option : options_) {
    if (!option.shown()) continue;
    name_width = std::max(name_width, indent(option) + last_part(option.name()).size());
    any_changed = any_changed || option.changed();
  }
  std::string out;
  for_each_group(
      *this, [](const Option& option) { return option.shown(); },
      [&](const std::string& section, const std::string& help) {
        if (section.empty()) return;
        out += fmt::format("  {}{}{}\n", section, help.empty() ? "" : ": ", help);
      },
      [&](const Option& option) {
        const std::string name =
            std::string(static_cast<size_t>(indent(option)), ' ') + last_part(option.name());
        const std::string unit = option.unit_name().empty() ? "" : " " + option.unit_name();
        out += fmt::format("{} {:<{}}  {}{}\n", option.changed() ? '*' : ' ', name, name_width, option.text(),
                           unit);
      });
  if (any_changed) out += "* differs from the default\n";
  return out;
}

std::string Schema::help_text(int width) const {
  size_t name_width = 0;
  for (const Option& option : options_) name_width = std::max(name_width, option.name().size() + 4);
  name_width = std::min<size_t>(name_width, 40);
  std::string out;
  for_each_group(
      *this, [](const Option&) { return true; },
      [&](const std::string& section, const std::string& help) {
        if (!out.empty()) out += "\n";
        if (!section.empty())
          out += wrap_text(section + (help.empty() ? "" : ": " + help), 0, static_cast<size_t>(width)) + "\n";
      },
      [&](const Option& option) {
        std::string facts = option.type_name();
        const std::string limits = option.limits_text();
        if (!limits.empty()) facts += ", " + limits;
        facts += "; default " + option.default_text();
        if (!option.unit_name().empty()) facts += " " + option.unit_name();
        const size_t column = name_width + 2;
        std::string name = "  --" + option.name();
        if (name.size() > name_width)
          name += "\n" + std::string(column, ' ');
        else
          name.resize(column, ' ');
        out +=
            name + wrap_text(option.help() + " (" + facts + ")", column, static_cast<size_t>(width)) + "\n";
      });
  return out;
}

}  // namespace melete
