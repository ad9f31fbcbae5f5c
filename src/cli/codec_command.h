// melete codec encode, decode, eval and compare.
#pragma once

#include <string>
#include <vector>

namespace melete {

class Schema;

int codec_command(const std::vector<std::string>& args);

// Flags that several have.
inline constexpr const char* kCodecFrom =
    "codec: a run folder, a checkpoint, what `melete import` wrote, or EnCodec's weights as downloaded";
inline constexpr const char* kCodecWeights =
    "ema: averaged, where there is an average; online: as the optimiser left them";

int codec_encode_command(const std::vector<std::string>& args);
int codec_decode_command(const std::vector<std::string>& args);
int codec_eval_command(const std::vector<std::string>& args);
int codec_compare_command(const std::vector<std::string>& args);

// What `codec compare` takes; the studio's playground has a form of it.
struct CodecCompareConfig {
  std::string from, recording, weights = "ema";
  double max_seconds = 30;
};
void describe(Schema& schema, CodecCompareConfig& config);

}  // namespace melete
