#include "cli/generate_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/arguments.h"
#include "cli/terminal.h"
#include "config/nearest.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "generate/load_audiolm.h"
#include "io/base/audio_file.h"

namespace melete {

namespace {

namespace fs = std::filesystem;

// Flags that mean the same for every stage, unless a stage's own says otherwise.
struct GenerateSettings {
  SamplingConfig semantic, coarse, fine;
};
void describe(Schema& s, GenerateSettings& c) {
  s.section("semantic", c.semantic, "sampling of the semantic stage");
  s.section("coarse", c.coarse, "sampling of the coarse stage");
  s.section("fine", c.fine, "sampling of the fine stage");
}

// out.wav, or out_0.wav, out_1.wav, ... for several.
std::string output_path(const std::string& out, int64_t row, int64_t rows) {
  if (rows == 1) return out;
  const fs::path path(out);
  return (path.parent_path() / fmt::format("{}_{}{}", path.stem().string(), row, path.extension().string()))
      .string();
}

class StageBars {
 public:
  void update(const std::string& stage, int64_t done, int64_t of) {
    if (stage != stage_) {
      bar_.reset();
      bar_ = std::make_unique<ProgressBar>(fmt::format("{:8}", stage), of, "tokens");
      stage_ = stage;
    }
    bar_->update(done);
    if (done == of) bar_->finish();
  }

 private:
  std::string stage_;
  std::unique_ptr<ProgressBar> bar_;
};

int generate_audiolm(const std::vector<std::string>& args) {
  AudioLmPaths paths;
  AudioLmRequest request;
  request.may_end = false;
  GenerateSettings settings;
  std::string from, out, prompt, text, precision = "fp32";
  int64_t threads = 0, seed = 0, top_k = 0;
  double temperature = 1, guidance = 3, top_p = 1, prompt_seconds = 0;
  Schema schema = schema_of(settings);
  Arguments arguments("generate audiolm", "makes sound from nothing, or goes on from a prompt");
  arguments.option("from", from, "folder of runs: finds the parts that are not given");
  arguments.option("semantic", paths.semantic, "run or checkpoint of the semantic stage");
  arguments.option("coarse", paths.coarse, "run or checkpoint of the coarse stage");
  arguments.option("fine", paths.fine, "run or checkpoint of the fine stage; without one, sound is coarse");
  arguments.option("tokenizer", paths.tokenizer,
                   "semantic tokenizer; default: the one they were trained with");
  arguments.option("codec", paths.codec, "codec; default: the one they were trained with");
  arguments.option("text-encoder", paths.text, "text encoder; default: the one they were trained with");
  arguments.option("prompt", prompt, "recording to go on from, at any rate");
  arguments.option("prompt-seconds", prompt_seconds, "take only this much of it; 0: all")
      .at_least(0)
      .unit("s");
  arguments.option("text", text, "what to make, for models that are conditioned on text");
  arguments.option("seconds", request.seconds, "how much new sound").at_least(0.01).unit("s");
  arguments.option("batch", request.batch, "how many different ones").at_least(1);
  arguments.option("temperature", temperature, "of all stages; 0: always the likeliest").at_least(0);
  arguments.option("top-k", top_k, "of all stages; 0: the likeliest tenth").at_least(0);
  arguments.option("top-p", top_p, "of all stages").at_least(0).at_most(1);
  arguments.option("guidance", guidance, "of all stages").at_least(0);
  arguments.option("until-end", request.may_end,
                   "stop where a model says the sound ends: for models trained on whole recordings");
  arguments.option("precision", precision, "of the weights; bf16 and int8: faster, a little less exact")
      .one_of(weight_precisions());
  arguments.option("seed", seed, "same seed, same sound").at_least(0);
  arguments.option("threads", threads, "0: all cores").at_least(0);
  arguments.option("out", out, "file to write: .wav, .flac, .ogg");
  arguments.alias("o", "out");
  arguments.settings(schema);
  arguments.example("generate audiolm --from runs --prompt in.wav --seconds 4 -o out.wav");
  arguments.example(
      "generate audiolm --semantic runs/semantic --coarse runs/coarse --fine runs/fine -o out.flac");
  if (!arguments.parse(args)) return 0;
  if (out.empty()) throw UsageError("expected -o FILE, got none; for example -o out.wav");
  if (!is_audio_extension(out))
    throw UsageError(fmt::format("cannot write {}: expected a name that ends with .wav, .flac or .ogg", out));
  const auto all = [&](const char* flag, auto SamplingConfig::*field, auto value) {
    if (!arguments.given(flag)) return;
    const std::string name = std::string(flag) == "top-k"   ? "top_k"
                             : std::string(flag) == "top-p" ? "top_p"
                                                            : flag;
    if (!arguments.given("semantic." + name)) settings.semantic.*field = value;
    if (!arguments.given("coarse." + name)) settings.coarse.*field = value;
    if (!arguments.given("fine." + name)) settings.fine.*field = value;
  };
  all("temperature", &SamplingConfig::temperature, temperature);
  all("top-k", &SamplingConfig::top_k, top_k);
  all("top-p", &SamplingConfig::top_p, top_p);
  all("guidance", &SamplingConfig::guidance, guidance);
  request.weights = weight_storage(precision);
  set_threads(static_cast<int>(threads));
  if (!from.empty()) find_parts(from, paths);
  AudioLm model = load_audiolm(paths);
  if (!text.empty() && !model.conditioned())
    throw UsageError("these models were trained without text; leave out --text");

  if (!prompt.empty()) {
    const AudioInfo info = probe_audio(prompt);
    const Audio audio =
        read_audio(prompt, 0, prompt_seconds > 0 ? static_cast<int64_t>(prompt_seconds * info.rate_hz) : -1);
    request.prompt = at::tensor(downmix(audio), at::kFloat);
    request.prompt_rate_hz = audio.rate_hz;
  }
  if (!text.empty()) request.texts = {text};
  request.semantic = settings.semantic;
  request.coarse = settings.coarse;
  request.fine = settings.fine;
  request.seed = static_cast<uint64_t>(seed);
  StageBars bars;
  request.progress = [&](const std::string& stage, int64_t done, int64_t of) {
    bars.update(stage, done, of);
  };
  const AudioLmResult result = generate(model, request);

  for (int64_t row = 0; row < request.batch; ++row) {
    const at::Tensor wave = result.waves[static_cast<size_t>(row)].contiguous();
    const std::string path = output_path(out, row, request.batch);
    if (wave.numel() == 0) {
      fmt::print("{}: the model ended at once; nothing was written\n", path);
      continue;
    }
    if (const fs::path folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder);
    write_audio(path, {wave.data_ptr<float>(), static_cast<size_t>(wave.numel())},
                static_cast<int>(model.codec->rate_hz()));
    fmt::print("{}  {:.2f} s at {} Hz\n", path,
               static_cast<double>(wave.numel()) / static_cast<double>(model.codec->rate_hz()),
               model.codec->rate_hz());
  }
  return 0;
}

}  // namespace

int generate_command(const std::vector<std::string>& args) {
  const std::vector<std::string> systems = {"audiolm"};
  if (args.empty() || args.front() == "--help" || args.front() == "-h") {
    fmt::print(
        "usage: melete generate <system> [flags]\n\nsystems:\n  audiolm   sound from nothing or from a "
        "prompt\n");
    if (args.empty()) throw UsageError("expected what to generate with, got nothing; there is: audiolm");
    return 0;
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args.front() == "audiolm") return generate_audiolm(rest);
  throw UsageError(fmt::format("nothing to generate with is called `{}`; did you mean `{}`?", args.front(),
                               nearest_word(args.front(), systems)));
}

}  // namespace melete
