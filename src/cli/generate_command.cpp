#include "cli/generate_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/say_weights.h"
#include "cli/terminal.h"
#include "config/nearest.h"
#include "core/base/error.h"
#include "io/base/audio_stream.h"
#include "systems/system.h"

namespace melete {

namespace {

// A bar for every part of the work, one after another.
class PartBars {
 public:
  void update(const std::string& part, int64_t done, int64_t of) {
    if (part != part_) {
      bar_.reset();
      bar_ = std::make_unique<ProgressBar>(fmt::format("{:8}", part), of, "steps");
      part_ = part;
    }
    bar_->update(done);
    if (done == of) bar_->finish();
  }

 private:
  std::string part_;
  std::unique_ptr<ProgressBar> bar_;
};

// Sound to a file that grows while it is made, or to standard output.
class GrowingSound {
 public:
  explicit GrowingSound(const std::string& path)
      : path_(path), file_(path == "-" ? stdout : std::fopen(path.c_str(), "wb")) {
    require(file_ != nullptr, "[stream] cannot write {}: {}", path, std::strerror(errno));
  }
  ~GrowingSound() {
    if (file_ != stdout) std::fclose(file_);
  }
  GrowingSound(const GrowingSound&) = delete;
  GrowingSound& operator=(const GrowingSound&) = delete;

  void add(std::span<const float> samples, int64_t rate_hz) {
    if (!stream_) stream_.emplace("wav", static_cast<int>(rate_hz));
    const std::string bytes = stream_->push(samples);
    require(std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size() && std::fflush(file_) == 0,
            "[stream] cannot write {}: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  std::FILE* file_;
  std::optional<AudioStream> stream_;  // once its rate is known
};

std::vector<const Generator*> generators() {
  std::vector<const Generator*> all;
  for (const System& system : systems())
    for (const Generator& generator : system.generates) all.push_back(&generator);
  return all;
}

int generate_with(const Generator& generator, const std::vector<std::string>& args) {
  const std::unique_ptr<Generation> generation = generator.make();
  Schema schema;
  generation->describe(schema);
  std::string out, stream;
  int64_t seed = 0;
  MachineWords machine;
  Arguments arguments("generate " + generator.name, generator.about);
  const std::vector<std::string> extensions = generation->extensions();
  arguments.option("out", out, fmt::format("file to write: {}", fmt::join(extensions, ", ")));
  arguments.option("seed", seed, "same seed, same result").at_least(0);
  if (generation->streams())
    arguments.option("stream", stream,
                     "file, or - for standard output, that sound goes to sentence by sentence as it is made: "
                     "WAV of 16 bits whose header leaves its length open");
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.settings(schema);
  for (const std::string& example : generation->examples()) arguments.example("generate " + example);
  if (!arguments.parse(args)) return 0;
  schema.check();
  if (out.empty())
    throw UsageError(fmt::format("expected -o FILE, got none; for example -o out{}", extensions.front()));
  const std::string extension = std::filesystem::path(out).extension().string();
  if (std::find(extensions.begin(), extensions.end(), extension) == extensions.end())
    throw UsageError(
        fmt::format("cannot write {}: expected a name that ends with {}", out, fmt::join(extensions, ", ")));

  PartBars bars;
  GenerationRun run;
  run.out = out;
  run.seed = static_cast<uint64_t>(seed);
  run.device = machine.start();
  const SayWeights say_weights;
  run.given = [&](const std::string& name) { return arguments.given(name); };
  run.progress = [&](const std::string& part, int64_t done, int64_t of) { bars.update(part, done, of); };
  run.say = [&](const std::string& line) { fmt::print(stream == "-" ? stderr : stdout, "{}\n", line); };
  std::optional<GrowingSound> growing;
  if (!stream.empty()) {
    growing.emplace(stream);
    run.hear = [&](std::span<const float> samples, int64_t rate_hz) { growing->add(samples, rate_hz); };
  }
  generation->run(run);
  return 0;
}

}  // namespace

int generate_command(const std::vector<std::string>& args) {
  std::vector<std::string> names;
  for (const Generator* generator : generators()) names.push_back(generator->name);
  if (args.empty() || args.front() == "--help" || args.front() == "-h") {
    TextTable list({"", ""});
    for (const Generator* generator : generators()) list.row({"  " + generator->name, generator->about});
    fmt::print("usage: melete generate <what> [flags]\n\n{}", list.text());
    if (args.empty())
      throw UsageError(
          fmt::format("expected what to generate, got nothing; there is: {}", fmt::join(names, ", ")));
    return 0;
  }
  for (const Generator* generator : generators())
    if (generator->name == args.front()) return generate_with(*generator, {args.begin() + 1, args.end()});
  throw UsageError(fmt::format("nothing to generate is called `{}`; did you mean `{}`?", args.front(),
                               nearest_word(args.front(), names)));
}

}  // namespace melete
