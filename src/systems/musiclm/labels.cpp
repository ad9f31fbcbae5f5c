#include "systems/musiclm/labels.h"

#include <fmt/ranges.h>

#include <sstream>

#include "core/base/error.h"

namespace melete::musiclm {

std::vector<Label> labels_of(const std::string& caption, const std::vector<std::string>& tags) {
  std::vector<Label> labels;
  if (!caption.empty()) labels.push_back({caption, false});
  if (!tags.empty()) labels.push_back({fmt::format("{}", fmt::join(tags, ", ")), true});
  if (tags.size() > 1)
    for (const std::string& tag : tags) labels.push_back({tag, true});
  return labels;
}

std::vector<std::string> tags_in(const std::string& lines) {
  std::vector<std::string> tags;
  std::istringstream stream(lines);
  for (std::string tag; std::getline(stream, tag);) tags.push_back(tag);
  return tags;
}

void Templates::check() const {
  check_templates(captions, "task.templates");
  check_templates(tags, "task.tag_templates");
}

const std::vector<std::string>& Templates::for_names() const {
  return tags == Templates().tags ? captions : tags;
}

std::string in_template(const std::string& around, const std::string& text) {
  const size_t hole = around.find("{}");
  return around.substr(0, hole) + text + around.substr(hole + 2);
}

void check_templates(const std::vector<std::string>& templates, const std::string& setting) {
  require(!templates.empty(), "[{}] expected at least one, got none", setting);
  for (const std::string& each : templates)
    require(each.find("{}") != std::string::npos, "[{}] expected {{}} where the text goes, got `{}`", setting,
            each);
}

}  // namespace melete::musiclm
