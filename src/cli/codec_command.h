// melete codec encode, decode and eval.
#pragma once

#include <string>
#include <vector>

namespace melete {

int codec_command(const std::vector<std::string>& args);

// Flags that all three have.
inline constexpr const char* kCodecFrom =
    "codec: a run folder, a checkpoint, what `melete import` wrote, or EnCodec's weights as downloaded";
inline constexpr const char* kCodecWeights =
    "ema: averaged, where there is an average; online: as the optimiser left them";

int codec_encode_command(const std::vector<std::string>& args);
int codec_decode_command(const std::vector<std::string>& args);
int codec_eval_command(const std::vector<std::string>& args);

}  // namespace melete
