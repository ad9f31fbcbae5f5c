// melete codec encode, decode and eval.
#pragma once

#include <string>
#include <vector>

namespace melete {

int codec_command(const std::vector<std::string>& args);

int codec_encode_command(const std::vector<std::string>& args);
int codec_decode_command(const std::vector<std::string>& args);
int codec_eval_command(const std::vector<std::string>& args);

}  // namespace melete
