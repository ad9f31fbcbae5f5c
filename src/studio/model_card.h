// `melete export --card`: what a model is, where it comes from and how good it was measured to be, as a page
// of Markdown.
#pragma once

#include <string>

namespace melete {

// Of a run's folder: its newest rows, its settings, the tables that evaluations left. Nothing is said that no
// file says.
std::string model_card(const std::string& run_folder);

}  // namespace melete
