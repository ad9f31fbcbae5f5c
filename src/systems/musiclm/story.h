// Texts that follow each other in time: "0 a slow organ; 10 a fast drum beat".
#pragma once

#include <string>
#include <vector>

namespace melete::musiclm {

struct StoryPart {
  double from_seconds = 0;
  std::string text;
};

// Parts in the order of time, the first at 0; an Error says what is wrong. A part is a number of seconds and
// a text; parts stand between semicolons or on lines of their own.
std::vector<StoryPart> parse_story(const std::string& words);

// The part that is told at that time.
const StoryPart& part_at(const std::vector<StoryPart>& story, double seconds);

}  // namespace melete::musiclm
