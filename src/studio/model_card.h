// `melete export --card`: what a model is, where it comes from and how good it was measured to be, as a page
// of Markdown.
#pragma once

#include <string>
#include <vector>

namespace melete {

// Of a run's folder: its newest rows, its settings, the tables that evaluations left. Nothing is said that no
// file says. uses: command lines that the model can be used with.
std::string model_card(const std::string& run_folder, const std::vector<std::string>& uses = {});

}  // namespace melete
