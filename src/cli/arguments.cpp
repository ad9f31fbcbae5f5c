#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "cli/terminal.h"
#include "config/nearest.h"
#include "config/wrap.h"
#include "core/base/error.h"

namespace melete {
namespace {

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

std::string dashed(const std::string& name) {
  return (name.size() == 1 ? "-" : "--") + name;
}

bool is_flag(const std::string& word) {
  return word.size() >= 2 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) &&
         word[1] != '.';
}

bool is_number(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

// An Option says "[name] expected ..."; on the command line the name is what was typed.
std::string as_typed(const std::string& message, const Option& option, const std::string& written) {
  const std::string front = "[" + option.name() + "] ";
  return written + ": " + (message.rfind(front, 0) == 0 ? message.substr(front.size()) : message);
}

std::string facts_of(const Option& option) {
  std::string facts;
  const auto add = [&](const std::string& fact) { facts += (facts.empty() ? "" : "; ") + fact; };
  if (!option.is_bool()) add(option.limits_text().empty() ? option.type_name() : option.limits_text());
  const std::string& value = option.default_text();
  const bool nothing = value == "\"\"" || value == "[]" || value == "false";
  if (!nothing) add("default " + value + (option.unit_name().empty() ? "" : " " + option.unit_name()));
  return facts.empty() ? "" : " (" + facts + ")";
}

std::string entry(const std::string& title, const std::string& text, size_t column, int width) {
  std::string out = "  " + title;
  if (out.size() + 2 > column)
    out += "\n" + std::string(column, ' ');
  else
    out.resize(column, ' ');
  return out + wrap_text(text, column, static_cast<size_t>(width)) + "\n";
}

}  // namespace

Arguments::Arguments(std::string command, std::string about)
    : command_(std::move(command)), about_(std::move(about)) {}

std::string Arguments::underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Option& Arguments::word(const std::string& name, std::string& target, std::string help) {
  return words_.emplace_back(Word{Option(name, &target, std::move(help)), true}).option;
}

Option& Arguments::optional_word(const std::string& name, std::string& target, std::string help) {
  return words_.emplace_back(Word{Option(name, &target, std::move(help)), false}).option;
}

void Arguments::rest(const std::string& name, std::vector<std::string>& target, std::string help) {
  rest_name_ = name;
  rest_ = &target;
  rest_help_ = std::move(help);
}

void Arguments::alias(const std::string& word, const std::string& meaning) {
  aliases_[underscored(word)] = underscored(meaning);
}
void Arguments::settings(Schema& schema) {
  settings_ = &schema;
}
void Arguments::example(const std::string& words) {
  examples_.push_back(words);
}

bool Arguments::given(const std::string& name) const {
  return std::find(given_.begin(), given_.end(), underscored(name)) != given_.end();
}

Arguments::Flag Arguments::find(const std::string& name) {
  const std::string spelling = underscored(name);
  const auto alias = aliases_.find(spelling);
  const std::string& meaning = alias == aliases_.end() ? spelling : alias->second;
  if (Option* option = own_.find(meaning)) return {option, false};
  if (settings_) {
    if (Option* option = settings_->find(meaning)) return {option, true};
  }
  return {nullptr, false};
}

std::vector<std::string> Arguments::flag_names() const {
  std::vector<std::string> names;
  for (const Option& option : own_.options()) names.push_back(option.name());
  for (const auto& [word, meaning] : aliases_) {
    if (word.size() > 1) names.push_back(word);
  }
  if (settings_) {
    names.insert(names.end(), {"config", "set"});
    for (const Option& option : settings_->options()) names.push_back(option.name());
  }
  names.push_back("help");
  return names;
}

void Arguments::fail_unknown(const std::string& flag) {
  const bool negated = underscored(flag).rfind("__no_", 0) == 0;
  const std::string name = flag.substr(negated ? 5 : std::min<size_t>(2, flag.find_first_not_of('-')));
  std::string nearest = nearest_dotted_name(name, flag_names());
  const Flag found = find(nearest);
  if (negated && found.option && found.option->is_bool()) nearest = "no-" + nearest;
  const std::string where = elsewhere_ ? elsewhere_(underscored(name)) : "";
  fail_usage("unknown option '{}'; did you mean '--{}'?{}", shortened(flag), nearest,
             where.empty() ? "" : " " + where);
}

void Arguments::assign(const Flag& flag, const std::string& written, const std::string& value) {
  given_.push_back(flag.option->name());
  if (flag.is_setting) {
    // Settings wait until the recipe has been read, which may be named later in the line.
    given_settings_.emplace_back(flag.option->name(), value);
    return;
  }
  try {
    flag.option->set_text(value);
  } catch (const Error& error) {
    throw UsageError(as_typed(error.what(), *flag.option, written));
  }
}

// Reads the flag at args[at] and its value; returns how many words it took.
size_t Arguments::parse_flag(const std::vector<std::string>& args, size_t at) {
  const std::string& word = args[at];
  const size_t equals = word.find('=');
  const std::string written = word.substr(0, equals);
  const size_t dashes = std::min<size_t>(written.find_first_not_of('-'), 2);
  const std::string name = written.substr(std::min(dashes, written.size()));
  if (name.empty()) fail_usage("expected the name of an option after '{}'", shortened(written));

  const bool known_config = settings_ && (name == "config" || name == "set");
  Flag flag = known_config ? Flag{nullptr, true} : find(name);
  // "-out" for "--out" is refused with the right spelling; one dash is for single letters.
  if (!known_config && (!flag.option || (dashes == 1) != (name.size() == 1))) {
    if (flag.option) fail_usage("unknown option '{}'; did you mean '{}'?", written, dashed(name));
    const bool negated = dashes == 2 && underscored(name).rfind("no_", 0) == 0;
    flag = negated ? find(name.substr(3)) : Flag{nullptr, false};
    if (!flag.option) fail_unknown(written);
    if (!flag.option->is_bool()) {
      fail_usage("{}: '{}' takes a value ({}), so there is no 'no-' form of it", written, name.substr(3),
                 flag.option->type_name());
    }
    if (equals != std::string::npos)
      fail_usage("{}: expected no value, got '{}'", written, word.substr(equals + 1));
    assign(flag, written, "false");
    return 1;
  }

  std::string value;
  size_t taken = 1;
  const bool more = at + 1 < args.size();
  if (equals != std::string::npos) {
    value = word.substr(equals + 1);
  } else if (!known_config && flag.option->is_bool()) {
    const bool says = more && (args[at + 1] == "true" || args[at + 1] == "false");
    value = says ? args[at + 1] : "true";
    taken = says ? 2 : 1;
  } else {
    const bool flag_follows = more && is_flag(args[at + 1]) && args[at + 1].size() > 1;
    if (!more || flag_follows) {
      fail_usage("{}: expected {}, got {}", written,
                 known_config ? (name == "set" ? "key=value" : "a recipe file") : flag.option->type_name(),
                 more ? "'" + shortened(args[at + 1]) + "'; write " + written + "=VALUE if that is the value"
                      : "nothing");
    }
    value = args[at + 1];
    taken = 2;
    // A list of numbers is written with commas, or as numbers in a row: --denoise 0.4 0.9
    const bool numbers = !known_config && flag.option->type_name() == "list of numbers";
    for (; numbers && at + taken < args.size() && is_number(args[at + taken]); ++taken)
      value += "," + args[at + taken];
  }
  if (known_config && name == "config") {
    recipes_.push_back(value);
    given_.push_back("config");
  } else if (known_config) {
    const size_t sign = value.find('=');
    if (sign == std::string::npos || sign == 0)
      fail_usage("--set: expected key=value, got '{}'", shortened(value));
    const std::string key = underscored(value.substr(0, sign));
    const Option* setting = settings_->find(key);
    if (!setting) {
      fail_usage("--set: '{}' is not a setting; did you mean '{}'?", shortened(key), settings_->nearest(key));
    }
    assign({settings_->find(key), true}, key, value.substr(sign + 1));
  } else {
    assign(flag, written, value);
  }
  return taken;
}

void Arguments::place_words(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words_.size(); ++i) {
    Option& option = words_[i].option;
    if (i >= words.size()) {
      if (!words_[i].needed) break;
      const std::string limits = option.limits_text();
      fail_usage("expected <{}>, {}{}{}", option.name(), option.help(), limits.empty() ? "" : ": ", limits);
    }
    try {
      option.set_text(words[i]);
    } catch (const Error& error) {
      throw UsageError(as_typed(error.what(), option, "<" + option.name() + ">"));
    }
    given_.push_back(option.name());
  }
  for (size_t i = words_.size(); i < words.size(); ++i) {
    if (rest_) {
      rest_->push_back(words[i]);
      continue;
    }
    const std::string key = words[i].substr(0, words[i].find('='));
    if (key != words[i] && find(key).option) {
      fail_usage("unexpected word '{}'; did you mean '--{}'?", shortened(words[i]), shortened(words[i]));
    }
    fail_usage("unexpected word '{}'; 'melete {}' takes {} of them", shortened(words[i]), command_,
               words_.empty() ? "none" : std::to_string(words_.size()));
  }
}

bool Arguments::parse(const std::vector<std::string>& args) {
  const auto end_of_flags = std::find(args.begin(), args.end(), "--");
  for (auto word = args.begin(); word != end_of_flags; ++word) {
    if (*word == "--help" || *word == "-h") {
      fmt::print("{}", help_text(std::clamp(terminal_width(stdout), 60, 140)));
      return false;
    }
  }
  recipes_.clear();
  given_settings_.clear();
  given_.clear();
  if (rest_) rest_->clear();
  std::vector<std::string> words;
  const auto flags = static_cast<size_t>(end_of_flags - args.begin());
  for (size_t at = 0; at < flags;) {
    if (is_flag(args[at]))
      at += parse_flag(args, at);
    else
      words.push_back(args[at++]);
  }
  if (end_of_flags != args.end()) words.insert(words.end(), end_of_flags + 1, args.end());
  place_words(words);
  apply_settings();
  return true;
}

void Arguments::apply_settings() {
  if (!settings_) return;
  try {
    for (const std::string& recipe : recipes_) settings_->apply_file(recipe);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  for (const auto& [name, value] : given_settings_) {
    Option& option = *settings_->find(name);
    try {
      option.set_text(value);
    } catch (const Error& error) {
      throw UsageError(as_typed(error.what(), option, "--" + name));
    }
  }
  settings_->check();
}

std::string Arguments::help_text(int width) const {
  std::string usage = "usage: melete " + command_;
  for (const Word& word : words_) {
    usage += (word.needed ? " <" : " [") + word.option.name() + (word.needed ? ">" : "]");
  }
  if (rest_) usage += fmt::format(" [{}...]", rest_name_);
  usage += " [options]";
  std::string out = fmt::format("melete {}: {}\n\n{}\n", command_, about_, usage);

  std::vector<std::pair<std::string, std::string>> words, options;
  for (const Word& word : words_) {
    const std::string title = word.needed ? "<" + word.option.name() + ">" : "[" + word.option.name() + "]";
    words.emplace_back(title, word.option.help() + facts_of(word.option));
  }
  if (rest_) words.emplace_back("[" + rest_name_ + "...]", rest_help_);
  for (const Option& option : own_.options()) {
    std::string title = "--" + option.name();
    for (const auto& [word, meaning] : aliases_) {
      if (meaning == option.name()) title = dashed(word) + ", " + title;
    }
    options.emplace_back(title, option.help() + facts_of(option));
  }
  for (const auto& [word, meaning] : aliases_) {
    if (settings_ && settings_->find(meaning)) options.emplace_back(dashed(word), "short for --" + meaning);
  }
  if (settings_) {
    options.emplace_back("--config", "recipe (TOML) to take settings from; given twice, the later one wins");
    options.emplace_back("--set", "key=value: any setting below, like its own flag");
  }
  options.emplace_back("-h, --help", "show this");

  size_t column = 0;
  for (const auto* list : {&words, &options}) {
    for (const auto& [title, text] : *list) column = std::max(column, title.size() + 4);
  }
  column = std::min<size_t>(column, 30);
  if (!words.empty()) out += "\n";
  for (const auto& [title, text] : words) out += entry(title, text, column, width);
  out += "\noptions:\n";
  for (const auto& [title, text] : options) out += entry(title, text, column, width);
  if (settings_) {
    const std::string title =
        "settings (each is a flag here and a key in a recipe; --no-NAME turns one off):";
    out += "\n" + wrap_text(title, 0, static_cast<size_t>(width)) + "\n";
    out += settings_->help_text(width);
  }
  if (!examples_.empty()) out += "\nexamples:\n";
  for (const std::string& example : examples_) out += "  melete " + example + "\n";
  return out;
}

std::vector<std::string> without_flags(const std::vector<std::string>& args,
                                       const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto alone = [&](const std::string& name) { return args[i] == "--" + name; };
    const auto joined = [&](const std::string& name) { return args[i].starts_with("--" + name + "="); };
    if (std::any_of(names.begin(), names.end(), alone))
      ++i;
    else if (std::none_of(names.begin(), names.end(), joined))
      words.push_back(args[i]);
  }
  return words;
}

}  // namespace melete
