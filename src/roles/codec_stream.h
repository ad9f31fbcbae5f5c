// A live codec between two byte streams: samples in, tokens out, and back.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <ostream>
#include <string>

#include "roles/codec.h"

namespace melete {

struct CodecStreamConfig {
  std::string name;          // of the codec, for people who look into the tokens
  int64_t quantizers = 0;    // of every group; 0: all
  int64_t chunk_frames = 1;  // of the codec, that are read at a time: fewer is sooner, more is cheaper
  int64_t rate_hz = 0;       // of the samples that come in; 0: the codec's
};

// 16-bit little-endian mono samples until the end of `in` -> a token stream. -> samples read
int64_t encode_stream(const Codec& codec, std::istream& in, std::ostream& out,
                      const CodecStreamConfig& config);
// A token stream -> 16-bit little-endian mono samples at the codec's rate, whole frames. -> samples written
int64_t decode_stream(const Codec& codec, std::istream& in, std::ostream& out,
                      const CodecStreamConfig& config);

}  // namespace melete
