#include "studio/tools.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "config/nearest.h"
#include "config/schema.h"
#include "core/base/error.h"
#include "studio/safe_path.h"

namespace melete {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr size_t kLongestValue = 20000;

bool begins_with_word(const std::string& help, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return help.starts_with(word); });
}

// "also write ... to this PNG": the ending of that file; empty: nothing is written.
std::string written_as(const std::string& help) {
  static const std::regex to_this("write .*to this ([A-Z]+)");
  std::smatch match;
  if (!std::regex_search(help, match, to_this)) return "";
  std::string ending = "." + match[1].str();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return ending;
}

// The help of a setting begins with what it is: "run of vocos, ...", "recording whose voice ...", "file with
// ...".
std::string form_kind(const Option& option) {
  if (option.is_bool()) return "flag";
  if (!option.choices().empty()) return "choice";
  const std::string type = option.type_name(), &help = option.help();
  if (type == "integer" || type == "number") return "number";
  if (help.starts_with("recordings:")) return "recording";  // one of them is offered
  if (type.starts_with("list")) return "list";
  if (!written_as(help).empty()) return "output";
  if (begins_with_word(help, {"run ", "run,", "folder of runs", "codec", "semantic tokenizer", "text encoder",
                              "frozen text encoder", "VQ-GAN"}))
    return "run";
  if (begins_with_word(help, {"recording"})) return "recording";
  if (begins_with_word(help, {"picture"})) return "picture";
  if (begins_with_word(help, {"file"}) || option.name().ends_with("_file")) return "file";
  return "text";
}

// What a run or a file of a model must be of; empty: anything.
std::vector<std::string> tasks_of(const Option& option) {
  static const std::regex of_task("^run(?: or checkpoint)? of ([a-z][a-z-]+)"),
      of_stage("^run.* ([a-z]+) stage");
  std::smatch match;
  const std::string& help = option.help();
  if (help.starts_with("codec")) return {"soundstream", "encodec"};
  if (help.starts_with("semantic tokenizer")) return {"semantic-tokenizer"};
  if (begins_with_word(help, {"text encoder", "frozen text encoder"})) return {"t5"};
  if (help.starts_with("VQ-GAN")) return {"vqgan"};
  if (std::regex_search(help, match, of_stage)) return {match[1]};
  if (std::regex_search(help, match, of_task)) return {match[1]};
  return {};
}

std::string setting_text(const std::string& name, const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  if (value.is_array()) {
    std::string list;
    for (const auto& one : value) list += (list.empty() ? "" : ",") + setting_text(name, one);
    return list;
  }
  fail("[{}] expected a text, a number, true, false or a list", name);
}

// A run or a file by its path below the runs' folder.
std::string checked_path(const std::string& name, const std::string& value, const fs::path& root,
                         const fs::path& shown) {
  require(path_inside(root, value).has_value(), "[{}] there is no `{}` in the runs' folder", name, value);
  return value == "." ? shown.string() : (shown / value).string();
}

// Words that happen to name a file elsewhere would be read by a setting that takes both.
void check_text(const std::string& name, const std::string& value, const fs::path& root) {
  if (value.empty() || value.size() > 4096) return;
  std::error_code error;
  const fs::path real = fs::canonical(value, error);
  require(error || is_inside(root, real), "[{}] `{}` is a file outside the runs' folder", name, value);
}

}  // namespace

ordered_json form_of(const Schema& schema) {
  auto form = ordered_json::array();
  for (const Option& option : schema.options()) {
    const std::string kind = form_kind(option);
    ordered_json one{{"name", option.name()},      {"kind", kind},
                     {"type", option.type_name()}, {"help", option.help()},
                     {"default", option.json()},   {"limits", option.limits_text()}};
    if (!option.unit_name().empty()) one["unit"] = option.unit_name();
    if (!option.choices().empty()) one["choices"] = option.choices();
    if (kind == "run")
      if (const auto tasks = tasks_of(option); !tasks.empty()) one["tasks"] = tasks;
    // Where it is written is not asked, only whether.
    if (kind == "output")
      one.update({{"type", "true or false"},
                  {"default", false},
                  {"file", option.name() + written_as(option.help())}});
    form.push_back(std::move(one));
  }
  return form;
}

ordered_json options_now(const StudioTool& tool) {
  ordered_json options = tool.options;
  for (auto& option : options)
    if (option.contains("names")) option["names"] = tool.names ? tool.names() : std::vector<std::string>{};
  return options;
}

JobRequest job_request(const StudioTool& tool, const ordered_json& settings, const std::string& extension,
                       const fs::path& root, const fs::path& shown) {
  require(settings.is_object(), "[{}] expected settings by name", tool.name);
  JobRequest request{tool.name, settings, tool.words, extension};
  if (tool.extensions.empty()) {
    request.extension.clear();
  } else if (extension.empty()) {
    request.extension = tool.extensions.front();
  } else {
    require(std::find(tool.extensions.begin(), tool.extensions.end(), extension) != tool.extensions.end(),
            "[{}] expected one of {}, got {}", tool.name, fmt::join(tool.extensions, ", "), extension);
  }
  const ordered_json options = options_now(tool);
  for (const auto& [name, value] : settings.items()) {
    const auto option =
        std::find_if(options.begin(), options.end(),
                     [&, &key = name](const ordered_json& one) { return one["name"] == key; });
    if (option == options.end()) {
      std::vector<std::string> names;
      for (const auto& one : options) names.push_back(one["name"]);
      fail("[{}] has no setting `{}`; did you mean `{}`?", tool.name, name, nearest_word(name, names));
    }
    std::string text = setting_text(name, value);
    if (text.empty()) continue;  // as if it had not been given
    require(text.size() <= kLongestValue && text.find('\0') == std::string::npos,
            "[{}] expected at most {} bytes", name, kLongestValue);
    const std::string kind = (*option)["kind"];
    if (kind == "output") {
      require(text == "true" || text == "false", "[{}] expected true or false", name);
      if (text == "true") request.files.emplace_back(name, (*option)["file"]);
      continue;
    }
    const auto names = option->find("names");  // that stand for something elsewhere
    if (names != option->end() && std::find(names->begin(), names->end(), text) != names->end()) {
    } else if (kind == "run" || kind == "recording" || kind == "picture" || kind == "file") {
      text = checked_path(name, text, root, shown);
    } else if (kind == "list" && value.is_array()) {
      for (const auto& one : value) check_text(name, setting_text(name, one), root);
    } else {
      check_text(name, text, root);
      if (kind == "list") {
        for (size_t at = 0; at <= text.size();) {
          const size_t end = std::min(text.find(',', at), text.size());
          check_text(name, text.substr(at, end - at), root);
          at = end + 1;
        }
      }
    }
    // One word, so that a value that begins with a dash is not taken for a flag.
    request.words.push_back("--" + name + "=" + text);
  }
  return request;
}

}  // namespace melete
