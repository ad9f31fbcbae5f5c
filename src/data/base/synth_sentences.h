// Sentences for synthesized speech, made from lists of words and patterns.
#pragma once

#include <string>

#include "core/base/random.h"

namespace melete {

// About 600 words in two dozen patterns, statements, questions and commands: every sound of English in many
// neighbourhoods, which a voice needs that is to say any text.
std::string varied_sentence(Rng& rng);

}  // namespace melete
