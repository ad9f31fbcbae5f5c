// Pieces longer than what the stages were trained on, by sliding windows: each goes on from the end of the
// one before, which stands before it as a prompt; and stories, whose windows have texts of their own.
#pragma once

#include <vector>

#include "systems/musiclm/generate.h"
#include "systems/musiclm/story.h"

namespace melete::musiclm {

struct LongPieceConfig {
  double window_seconds = 0;   // sound that the models see at once, overlap included; 0: the whole piece
  double overlap_seconds = 1;  // of it that comes from the window before
  std::vector<StoryPart> story = {};  // empty: the request's text for all of it
};

// A window: where its new sound begins and how much it is.
struct PieceWindow {
  double begin_seconds = 0, seconds = 0;
  std::string text;
};

// The windows of a piece of so many seconds; a story's parts begin windows of their own.
std::vector<PieceWindow> plan_windows(double seconds, const std::string& text, const LongPieceConfig& config);

// request.audiolm.seconds of new sound; where a prompt is given it comes first. Scores are means over the
// windows' texts, each held against the new sound of its own time.
MusicResult generate_long(MusicLm& model, const MusicRequest& request, const LongPieceConfig& config);

}  // namespace melete::musiclm
