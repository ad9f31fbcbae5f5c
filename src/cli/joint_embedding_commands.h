// A trained joint embedding as a tool: `melete embed`, `search`, `classify` and `eval mulan`.
#pragma once

#include <string>
#include <vector>

namespace melete {

class JointEmbedding;

// Says how many of these texts are longer than what is read of them, where there are any.
void say_cut(const JointEmbedding& embedding, const std::vector<std::string>& texts);

int embed_command(const std::vector<std::string>& args);
int search_command(const std::vector<std::string>& args);
int classify_command(const std::vector<std::string>& args);
int eval_command(const std::vector<std::string>& args);

}  // namespace melete
