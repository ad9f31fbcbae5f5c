// Sound out of files that libsndfile does not read, through the ffmpeg program where it is installed.
#pragma once

#include <cstdint>
#include <string>

namespace melete {

// The program on PATH; empty where there is none.
std::string find_ffmpeg();

struct FfmpegLimits {
  double seconds = 600;              // that it may take
  int64_t bytes = int64_t{4} << 30;  // that it may write: 3 hours of stereo at 48 kHz
};

// The first audio stream of a file, decoded as an AU file of 32-bit floats without a name: it is gone when
// its descriptor is closed, whatever happens to the process. The caller closes it. No shell is involved, the
// file's name is only ever a file's name, and nothing but files is opened.
int decode_with_ffmpeg(const std::string& path, const FfmpegLimits& limits = {});

}  // namespace melete
