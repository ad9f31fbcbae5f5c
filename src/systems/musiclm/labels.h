// What is said of an item: its caption, and its tags or the name of its class.
#pragma once

#include <string>
#include <vector>

namespace melete::musiclm {

struct Label {
  std::string words;
  bool tag = false;  // goes into the templates for tags, not into those for captions
};

// The caption, all tags together, each of several tags. The first one stands for the item where there is no
// choice; none where nothing is said of it.
std::vector<Label> labels_of(const std::string& caption, const std::vector<std::string>& tags);

// The tags of an item as a batch has them: one a line.
std::vector<std::string> tags_in(const std::string& lines);

// What texts are put into, {} being the text.
struct Templates {
  std::vector<std::string> captions = {"{}"}, tags = {"{}"};

  void check() const;
  const std::vector<std::string>& of(const Label& label) const { return label.tag ? tags : captions; }
  // Those that names of classes go into: where none are given for tags, those of captions.
  const std::vector<std::string>& for_names() const;
};

// "the sound of {}" around a label. The hole must be there: check_templates throws an Error where it is not.
std::string in_template(const std::string& around, const std::string& text);
void check_templates(const std::vector<std::string>& templates, const std::string& setting);

}  // namespace melete::musiclm
