#include "data/base/synth_files.h"

#include <filesystem>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"

namespace melete {

std::string synth_path(const SynthOptions& options, const std::string& kind, int64_t index) {
  return (std::filesystem::path(options.folder) / fmt::format("{}_{:06}.{}", kind, index, options.format))
      .string();
}

void write_synth_files(const SynthOptions& options, const std::string& kind, const ProgressCallback& progress,
                       const std::function<SynthFile(int64_t)>& make) {
  require(options.count >= 1 && options.count <= 10'000'000,
          "[synth] expected a count of 1 to 10000000, got {}", options.count);
  require(options.format == "flac" || options.format == "wav",
          "[synth] expected the format flac or wav, got {}", options.format);
  require(!options.folder.empty(), "[synth] expected a folder to write to, got none");
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  require(!error, "[synth] cannot create the folder {}: {}", options.folder, error.message());
  const auto write = [&](int64_t index) {
    const SynthFile file = make(index);
    const std::string path = synth_path(options, kind, index);
    // The text first: a recording that is there has its words.
    write_file_atomically(std::filesystem::path(path).replace_extension(".txt").string(), file.text + "\n");
    write_audio(path, file.samples, options.rate_hz);
  };
  for_each_parallel(options.count, write, progress);
}

}  // namespace melete
