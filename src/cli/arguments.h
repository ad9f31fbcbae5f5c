// The words of one command. A command says what it takes, and the same table feeds the parser and the help:
//
//   int train_command(const std::vector<std::string>& args) {
//     TrainerConfig config;
//     Schema schema = schema_of(config);
//     std::string what, data, out = "runs/latest";
//     bool resume = false;
//     Arguments arguments("train", "trains a model on your recordings");
//     arguments.word("what", what, "system to train").one_of({"soundstream"});
//     arguments.option("data", data, "folder or manifest to train on");
//     arguments.option("out", out, "folder of the run");
//     arguments.option("resume", resume, "go on from the newest checkpoint");
//     arguments.alias("o", "out");            // -o
//     arguments.alias("steps", "train.steps");  // --steps is short for --train.steps
//     arguments.settings(schema);             // --config, --set, and every key as a flag
//     if (!arguments.parse(args)) return 0;   // help was asked for and printed
//
// What counts: defaults < recipe file and what it includes < flags, wherever they stand in the line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"

namespace melete {

class Arguments {
 public:
  Arguments(std::string command, std::string about);

  // Words without a flag, in this order. An optional one that is not given leaves its target alone.
  Option& word(const std::string& name, std::string& target, std::string help);
  Option& optional_word(const std::string& name, std::string& target, std::string help);
  void rest(const std::string& name, std::vector<std::string>& target,
            std::string help);  // all that are left

  // The command's own flags: --name value, or --name alone for a bool. Names are shown with underscores, as
  // recipes spell their keys; dashes in their place are understood everywhere.
  template <class T>
  Option& option(const std::string& name, T& target, std::string help) {
    return own_.option(underscored(name), target, std::move(help));
  }
  // Another word for an own flag or for a setting; of one letter it is written -o, else --steps.
  void alias(const std::string& word, const std::string& meaning);
  void settings(Schema& schema);           // the schema must outlive the arguments
  void example(const std::string& words);  // shown at the end of the help
  // What else to say of an option that is not known here; may be nothing.
  void elsewhere(std::function<std::string(const std::string& name)> where) { elsewhere_ = std::move(where); }

  // False when help was asked for (and printed to stdout). Throws UsageError.
  bool parse(const std::vector<std::string>& args);
  // Lays the recipes and the flags of the last parse() over what the settings hold now: for a command that
  // learns only after parsing what they start from (a checkpoint's configuration).
  void apply_settings();

  const std::vector<std::string>& recipes() const { return recipes_; }  // files of --config, in order
  bool given(const std::string& name) const;  // whether a flag or setting of that full name was in the words
  std::string help_text(int width = 100) const;

 private:
  std::function<std::string(const std::string&)> elsewhere_;
  struct Word {
    Option option;
    bool needed;
  };
  struct Flag {
    Option* option;
    bool is_setting;
  };

  static std::string underscored(std::string name);
  Flag find(const std::string& name);
  [[noreturn]] void fail_unknown(const std::string& flag);
  size_t parse_flag(const std::vector<std::string>& args, size_t at);
  void assign(const Flag& flag, const std::string& written, const std::string& value);
  void place_words(const std::vector<std::string>& words);
  std::vector<std::string> flag_names() const;

  std::string command_, about_;
  std::vector<Word> words_;
  std::string rest_name_, rest_help_;
  std::vector<std::string>* rest_ = nullptr;
  Schema own_;
  Schema* settings_ = nullptr;
  std::map<std::string, std::string> aliases_;
  std::vector<std::string> examples_;
  std::vector<std::string> recipes_;                                 // --config, in order
  std::vector<std::pair<std::string, std::string>> given_settings_;  // name, text
  std::vector<std::string> given_;
};

// The words without some flags and their values: for a program that starts itself again.
std::vector<std::string> without_flags(const std::vector<std::string>& args,
                                       const std::vector<std::string>& names);

}  // namespace melete
