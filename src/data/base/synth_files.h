// How both synthesizers leave their work on disk: kind_000012.flac with its words in kind_000012.txt.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/base/synth_music.h"

namespace melete {

struct SynthFile {
  std::vector<float> samples;  // mono
  std::string text;
};

// Where a recording goes.
std::string synth_path(const SynthOptions& options, const std::string& kind, int64_t index);

// Makes the files 0 .. count-1 on several threads; `make` must be a function of the index alone.
void write_synth_files(const SynthOptions& options, const std::string& kind, const ProgressCallback& progress,
                       const std::function<SynthFile(int64_t)>& make);

}  // namespace melete
