// `melete data text-tokenizer`.
#pragma once

#include <string>
#include <vector>

namespace melete {

int text_tokenizer_command(const std::vector<std::string>& args);

}  // namespace melete
