#include "systems/musiclm/story.h"

#include <charconv>

#include "core/base/error.h"

namespace melete::musiclm {

namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

StoryPart parse_part(const std::string& words) {
  StoryPart part;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), part.from_seconds);
  part.text = trimmed(std::string(end, words.data() + words.size()));
  if (part.text.starts_with(":")) part.text = trimmed(part.text.substr(1));
  require(error == std::errc() && part.from_seconds >= 0 && !part.text.empty(),
          "[story] expected seconds and a text, as in `10 a fast drum beat`, got `{}`", words);
  return part;
}

}  // namespace

std::vector<StoryPart> parse_story(const std::string& words) {
  std::vector<StoryPart> story;
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find_first_of(";\n", at), words.size());
    if (const std::string part = trimmed(words.substr(at, end - at)); !part.empty())
      story.push_back(parse_part(part));
    at = end + 1;
  }
  require(!story.empty(), "[story] expected parts as in `0 a slow organ; 10 a fast drum beat`, got none");
  require(story.front().from_seconds == 0, "[story] expected the first part at 0 seconds, got it at {}",
          story.front().from_seconds);
  for (size_t i = 1; i < story.size(); ++i)
    require(story[i].from_seconds > story[i - 1].from_seconds,
            "[story] expected parts in the order of time, got {} seconds after {}", story[i].from_seconds,
            story[i - 1].from_seconds);
  return story;
}

const StoryPart& part_at(const std::vector<StoryPart>& story, double seconds) {
  size_t found = 0;
  while (found + 1 < story.size() && story[found + 1].from_seconds <= seconds) ++found;
  return story.at(found);
}

}  // namespace melete::musiclm
