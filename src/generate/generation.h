// One thing that `melete generate` makes: its settings as one table, and the making. The command line parses
// and prints; a generation neither.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace melete {

class Schema;

struct GenerationRun {
  std::string out;  // file to write
  uint64_t seed = 0;
  c10::Device device = c10::kCPU;                         // where the models compute
  std::function<bool(const std::string& setting)> given;  // whether a person set it
  std::function<void(const std::string& part, int64_t done, int64_t of)> progress;
  std::function<void(const std::string& line)> say;  // a result, for people
  // Sound as soon as a piece of it is made, in order; may be empty. Only of those that say streams().
  std::function<void(std::span<const float> samples, int64_t rate_hz)> hear;
};

class Generation {
 public:
  virtual ~Generation() = default;

  virtual void describe(Schema& schema) = 0;
  // Shown at the end of the help: words after `melete generate`.
  virtual std::vector<std::string> examples() const = 0;
  // What it writes: extensions with their dot.
  virtual std::vector<std::string> extensions() const { return {".wav", ".flac", ".ogg"}; }
  // Whether its sound is made piece by piece, each of which run.hear is told.
  virtual bool streams() const { return false; }
  // Settings are read and in their limits.
  virtual void run(const GenerationRun& run) = 0;
};

// out.wav, or out_0.wav, out_1.wav, ... for several.
std::string numbered_path(const std::string& out, int64_t number, int64_t count);
// What `path` was made of, into a .txt beside it: as data has its captions.
void write_text_beside(const std::string& path, const std::string& text);

}  // namespace melete
