// "Did you mean ...": the candidate that a person most likely meant to type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace melete {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b; case and '-'/'_' do not
// count.
int edit_distance(std::string_view a, std::string_view b);

// The closest candidate, the first of equals; empty only when there are no candidates. A word that is a part
// of a candidate ("rate" in "sample_rate") counts as close.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// The same for dotted names: "chanels" and "net.channels" both find "model.channels".
std::string nearest_dotted_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace melete
