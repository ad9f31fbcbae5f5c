#include "cli/kmeans_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "data/base/manifest.h"
#include "pretrained/feature_stream.h"
#include "pretrained/import.h"
#include "pretrained/kmeans_fit.h"
#include "run/checkpoint.h"

namespace melete {

namespace {

// A file of ours, or HuBERT as it is downloaded.
Hubert load_hubert(const std::string& path) {
  if (path.ends_with(".safetensors") && std::filesystem::exists(path)) {
    const SafetensorsFile file(path);
    if (file.metadata().count("melete.checkpoint")) return hubert_of(load_frozen(path), path);
  }
  return import_hubert(path);
}

int64_t layer_of(const std::string& features) {
  const std::string number = features.substr(std::string("hubert:").size());
  if (number.empty() || number.size() > 4 || number.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError(fmt::format("--features hubert:LAYER wants a number, got `{}`", features));
  return std::stoll(number);
}

struct Settings {
  KmeansConfig kmeans;
  MfccConfig mfcc;
  SemitonesConfig semitones;
};

void describe(Schema& schema, Settings& settings) {
  describe(schema, settings.kmeans);
  schema.section("mfcc", settings.mfcc, "cepstral coefficients, for --features mfcc");
  schema.section("semitones", settings.semitones, "loudness of notes, for --features semitones");
}

std::unique_ptr<FrameFeatures> features_named(const std::string& name, const std::string& hubert,
                                              const Settings& settings) {
  if (name == Mfcc::kName) return std::make_unique<MfccFeatures>(settings.mfcc);
  if (name == Semitones::kName) return std::make_unique<SemitoneFeatures>(settings.semitones);
  if (!name.starts_with("hubert:"))
    throw UsageError(fmt::format("--features expected mfcc, semitones or hubert:LAYER, got `{}`", name));
  if (hubert.empty()) throw UsageError("--features hubert:LAYER needs --hubert FILE");
  return std::make_unique<HubertFeatures>(load_hubert(hubert), layer_of(name));
}

}  // namespace

int kmeans_command(const std::vector<std::string>& args) {
  std::string features_name = "mfcc", hubert, data, out = "semantic-tokenizer.safetensors";
  MachineWords machine;
  double segment_seconds = 4;
  Settings settings;
  Schema schema = schema_of(settings);
  Arguments arguments("train kmeans",
                      "fits semantic tokens to your recordings: k-means over frames of features");
  arguments.option("features", features_name,
                   "mfcc (what is said), semitones (which notes sound), or hubert:LAYER");
  arguments.option("hubert", hubert, "HuBERT's weights: what `melete import hubert` wrote, or as downloaded");
  arguments.option("data", data, "folder or manifest of recordings");
  arguments.option("out", out, "file to write");
  arguments.option("segment_seconds", segment_seconds, "of a recording at a time").at_least(0.1).unit("s");
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.settings(schema);
  arguments.example(
      "train kmeans --features mfcc --clusters 200 --data my-recordings -o semantic.safetensors");
  arguments.example(
      "train kmeans --features semitones --clusters 128 --data my-music -o semantic.safetensors");
  arguments.example(
      "train kmeans --features hubert:9 --hubert hubert.safetensors --clusters 500 --data my-recordings -o "
      "semantic.safetensors");
  if (!arguments.parse(args)) return 0;
  if (data.empty()) throw UsageError("no recordings to fit on; give --data FOLDER_OR_MANIFEST");
  if (!out.ends_with(".safetensors"))
    throw UsageError(fmt::format("--out expected a name that ends with .safetensors, got `{}`", out));
  if (features_name != "mfcc" && !arguments.given("standardise")) settings.kmeans.standardise = false;
  schema.check();
  const c10::Device device = machine.start();

  auto features = put_on(device, features_named(features_name, hubert, settings));
  auto entries = load_entries(data);
  fmt::print("{} recordings, {} features of {} numbers, {} a second, {} clusters\n", entries.size(),
             features->kind(), features->dim(),
             static_cast<double>(features->rate_hz()) / static_cast<double>(features->samples_per_frame()),
             settings.kmeans.clusters);
  FeatureStream stream(
      *features, std::move(entries), settings.kmeans.batch_frames,
      static_cast<uint64_t>(settings.kmeans.seed),
      [](const std::string& path, const std::string& message) {
        fmt::print(stderr, "skipped {}: {}\n", path, message);
      },
      segment_seconds);
  const KmeansFit fit =
      fit_kmeans([&](int64_t number) { return stream.batch(number); }, settings.kmeans,
                 [](const KmeansProgress& now) {
                   const bool start = now.stage == KmeansProgress::Stage::start;
                   if (!start && now.number % 10 != 0 && now.number != 1) return;
                   fmt::print("{} {:>4}  inertia {:.4f}  average {:.4f}  reseeded {}\n",
                              start ? "start" : "batch", now.number, now.inertia, now.average, now.reseeded);
                   std::fflush(stdout);
                 },
                 device);
  const double explained = 1 - fit.inertia / fit.total_spread;
  const nlohmann::ordered_json about = {
      {"inertia", fit.inertia},   {"explained", explained}, {"frames", fit.frames}, {"batches", fit.batches},
      {"reseeded", fit.reseeded}, {"unused", fit.unused},   {"fit", schema.json()}};
  const KmeansTokenizer tokenizer(std::move(features), fit.centroids);
  save_frozen(out, frozen(tokenizer), about);
  fmt::print(
      "inertia {:.4f} ({:.1f} % of the spread explained) over {} frames; {} clusters moved, {} unused\n"
      "{}: {} tokens, {:g} a second, identity {}\n",
      fit.inertia, 100 * explained, fit.frames, fit.reseeded, fit.unused, out, tokenizer.codebook_size(),
      tokenizer.tokens_per_second(), tokenizer.identity());
  return 0;
}

}  // namespace melete
