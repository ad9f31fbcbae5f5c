// One table per configuration struct. A struct says once what its settings are:
//
//   void describe(Schema& s, TrainerConfig& c) {
//     s.option("steps", c.steps, "optimiser steps to take").at_least(1);
//     s.option("precision", c.precision, "arithmetic of the forward pass").one_of({"fp32", "bf16"});
//     s.section("optimiser", c.optimiser, "how weights move");      // calls describe(Schema&,
//     OptimiserConfig&)
//   }
//
// and that one table feeds the TOML file, the command-line flags, the help, the checks, the start-up table
// and what a checkpoint stores. Nothing is listed twice. A Schema points into the struct, which must outlive
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace melete {

using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*,
                            std::vector<double>*, std::vector<std::string>*>;

class Option {
 public:
  Option(std::string name, Target target, std::string help);

  Option& at_least(double low);
  Option& at_most(double high);
  Option& one_of(std::vector<std::string> choices);
  Option& unit(std::string unit);  // "s", "Hz", "steps"; shown in help and tables
  // The value is the path of a file whose bytes a run keeps: in its checkpoints under this name. On resume,
  // and where the file is gone, `bytes` holds them.
  Option& kept(std::string checkpoint_name, std::string& bytes);

  const std::string& name() const { return name_; }  // dotted: "model.channels"
  const std::string& help() const { return help_; }
  const std::string& unit_name() const { return unit_; }
  const std::vector<std::string>& choices() const { return choices_; }
  const std::string& kept_name() const { return kept_name_; }  // empty: nothing is kept
  std::string* kept_bytes() const { return kept_bytes_; }
  const std::string& default_text() const {
    return default_text_;
  }                                 // what the struct held when it was described
  std::string type_name() const;    // "integer", "list of numbers", ...
  std::string limits_text() const;  // "at least 1", "one of fp32, bf16", or empty
  bool is_bool() const { return std::holds_alternative<bool*>(target_); }
  bool changed() const { return text() != default_text_; }

  std::string text() const;             // the value as it would be written in TOML
  nlohmann::ordered_json json() const;  // the value
  bool shown() const;                   // in the start-up table
  // Each throws an Error "[name] expected ..., got ..." and then leaves the value as it was.
  void set_text(const std::string& text);  // from a flag: "64", "2,4,5,8" or "[2, 4, 5, 8]", "true"
  void set_json(const nlohmann::ordered_json& value);  // from a checkpoint or a parsed TOML file
  void check() const;                                  // range and choices

 private:
  std::string name_, help_, unit_, default_text_;
  Target target_;
  double low_, high_;
  std::vector<std::string> choices_;
  std::string kept_name_;
  std::string* kept_bytes_ = nullptr;
  const std::string* choice_ = nullptr;  // only while it holds one of these is this option in use
  std::vector<std::string> in_use_for_;
  friend class Schema;
};

class Schema {
 public:
  template <class T>
  Option& option(const std::string& name, T& target, std::string help) {
    return add(prefix_ + name, Target(&target), std::move(help));
  }

  template <class Config>
  void section(const std::string& name, Config& config, const std::string& help) {
    const std::string outer = prefix_;
    add_section(prefix_ + name, help);
    prefix_ += name + ".";
    describe(*this, config);
    prefix_ = outer;
  }

  // That option, or all of that section, means something only while `choice` holds one of these: elsewhere
  // the start-up table leaves it out, unless it was set.
  void only_for(const std::string& name, const std::string& choice, const std::vector<std::string>& values);

  const std::vector<Option>& options() const { return options_; }
  const std::vector<std::pair<std::string, std::string>>& sections() const {
    return sections_;
  }  // name, help

  Option* find(const std::string& name);  // nullptr when there is none
  const Option* find(const std::string& name) const;
  std::string nearest(const std::string& name) const;  // the option whose name is closest, for "did you mean"

  // Each throws an Error naming the unknown key and the nearest right one.
  void set(const std::string& name, const std::string& text);
  void apply(const nlohmann::ordered_json& nested);  // {"model": {"channels": 32}}
  void apply_file(const std::string& toml_path);     // with `include = "base.toml"`, relative to the file
  void check() const;

  nlohmann::ordered_json json() const;  // nested, in the order of the table
  std::string table() const;            // what start-up prints; '*' marks what differs from the default
  std::string help_text(int width = 100) const;  // every setting as a flag, with type, default, unit, choices

 private:
  Option& add(std::string name, Target target, std::string help);
  void add_section(const std::string& name, const std::string& help);
  bool is_section(const std::string& name) const;
  [[noreturn]] void fail_unknown(const std::string& name) const;
  // where: "recipe.toml:7" for a key, put before the message; may be empty.
  void apply(const nlohmann::ordered_json& nested, const std::string& prefix,
             const std::function<std::string(const std::string&)>& where);

  std::string prefix_;
  std::vector<Option> options_;
  std::vector<std::pair<std::string, std::string>> sections_;
};

template <class Config>
Schema schema_of(Config& config) {
  Schema schema;
  describe(schema, config);
  return schema;
}

}  // namespace melete
