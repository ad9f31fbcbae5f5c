#include "generate/load_audiolm.h"

#include <algorithm>
#include <filesystem>

#include "config/schema.h"
#include "core/base/error.h"
#include "generate/load_frozen.h"
#include "run/run_folder.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

FoundCheckpoint open_run(const std::string& path, const std::string& task) {
  require(!path.empty(), "[audiolm] no {} model given; use --{} RUN or --from FOLDER", task, task);
  FoundCheckpoint found;
  if (fs::is_directory(path)) {
    auto newest = latest_usable(path, [](const std::string&) {});
    require(newest.has_value(), "[audiolm] {} has no usable checkpoint", path);
    found = std::move(*newest);
  } else {
    found = {path, load_checkpoint(path)};
  }
  const std::string is = found.checkpoint.meta.value("task", "");
  require(is == task, "[audiolm] expected a `{}` model, but {} is one of `{}`", task, found.path, is);
  return found;
}

template <class Model, class Config>
Model build(const FoundCheckpoint& found, Weights weights) {
  Config config;
  schema_of(config).apply(found.checkpoint.meta.at("config").at("model"));
  Model model(config);
  model->eval();
  const at::NoGradGuard no_grad;
  const TensorMap& tensors = found.checkpoint.tensors;
  for (auto& item : model->named_parameters()) {
    const auto average = tensors.find("ema.average." + item.key());
    const auto online = tensors.find("model." + item.key());
    const bool take_average = weights == Weights::best && average != tensors.end();
    require(take_average || online != tensors.end(), "[audiolm] {} lacks model.{}", found.path, item.key());
    const at::Tensor& stored = take_average ? average->second : online->second;
    require(stored.sizes() == item.value().sizes(),
            "[audiolm] {} of {} has another shape than its settings say", item.key(), found.path);
    item.value().copy_(stored);
  }
  return model;
}

std::string setting(const FoundCheckpoint& found, const char* name) {
  return found.checkpoint.meta.at("config").value(name, "");
}

void require_same(const std::string& what, const FoundCheckpoint& run, const std::string& trained_with,
                  const std::string& loaded) {
  require(trained_with == loaded, "[audiolm] {} was trained with {} {}, the one given is {}", run.path, what,
          trained_with, loaded);
}

// What a file or run folder is, from its metadata alone; empty when it is nothing of ours.
std::string kind_of(const fs::path& path) {
  try {
    if (fs::is_directory(path)) {
      for (const CheckpointEntry& entry : list_checkpoints(path.string()))
        if (entry.problem.empty()) return read_checkpoint_meta(entry.path).value("task", "");
      return "";
    }
    if (path.extension() != ".safetensors") return "";
    return read_checkpoint_meta(path.string()).value("task", "");
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

void find_parts(const std::string& folder, AudioLmPaths& paths) {
  require(fs::is_directory(folder), "[audiolm] {} is not a folder of runs", folder);
  std::vector<std::pair<std::string, std::string*>> wanted = {{"semantic", &paths.semantic},
                                                              {"coarse", &paths.coarse},
                                                              {"fine", &paths.fine},
                                                              {"semantic-tokenizer", &paths.tokenizer},
                                                              {"soundstream", &paths.codec}};
  const AudioLmPaths given = paths;
  std::vector<fs::path> places;
  for (const auto& entry : fs::directory_iterator(folder)) places.push_back(entry.path());
  std::sort(places.begin(), places.end());
  const std::vector<std::string> fixed = {given.semantic, given.coarse, given.fine, given.tokenizer,
                                          given.codec};
  for (const fs::path& place : places) {
    const std::string kind = kind_of(place);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const bool fits = wanted[i].first == kind || (wanted[i].first == "soundstream" && kind == "encodec");
      if (!fits || !fixed[i].empty()) continue;
      std::string& path = *wanted[i].second;
      require(path.empty(), "[audiolm] {} has two parts of kind `{}`: {} and {}; say which with --{}", folder,
              kind, path, place.string(),
              i == 3   ? "tokenizer"
              : i == 4 ? "codec"
                       : kind);
      path = place.string();
    }
  }
}

AudioLm load_audiolm(const AudioLmPaths& paths, Weights weights) {
  const FoundCheckpoint semantic = open_run(paths.semantic, "semantic");
  const FoundCheckpoint coarse = open_run(paths.coarse, "coarse");
  AudioLm model;
  model.semantic = build<SemanticTransformer, SemanticConfig>(semantic, weights);
  model.coarse = build<CoarseTransformer, CoarseConfig>(coarse, weights);

  const std::string tokenizer =
      paths.tokenizer.empty() ? setting(semantic, "semantic_from") : paths.tokenizer;
  require(!tokenizer.empty(), "[audiolm] {} does not say where its tokenizer is; give --tokenizer FILE",
          semantic.path);
  model.tokenizer = load_semantic_tokenizer(tokenizer);
  const std::string codec = paths.codec.empty() ? setting(coarse, "codec_from") : paths.codec;
  require(!codec.empty(), "[audiolm] {} does not say where its codec is; give --codec RUN", coarse.path);
  model.codec = load_any_codec(codec);
  require_same("tokenizer", semantic, setting(semantic, "semantic_identity"), model.tokenizer->identity());
  require_same("tokenizer", coarse, setting(coarse, "semantic_identity"), model.tokenizer->identity());
  require_same("codec", coarse, setting(coarse, "codec_identity"), model.codec->identity());
  if (!paths.fine.empty()) {
    const FoundCheckpoint fine = open_run(paths.fine, "fine");
    model.fine = build<FineTransformer, FineConfig>(fine, weights);
    require_same("codec", fine, setting(fine, "codec_identity"), model.codec->identity());
  }
  if (model.conditioned()) {
    const std::string text = paths.text.empty() ? setting(semantic, "text_from") : paths.text;
    require(!text.empty(), "[audiolm] these models are conditioned on text; give --text-encoder FILE");
    model.text_encoder = load_text_encoder(text);
    if (model.semantic->stage().conditioned())
      require_same("text encoder", semantic, setting(semantic, "text_identity"),
                   model.text_encoder->identity());
  }
  model.check();
  return model;
}

}  // namespace melete
