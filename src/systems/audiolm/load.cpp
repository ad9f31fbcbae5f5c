#include "systems/audiolm/load.h"

#include <algorithm>
#include <filesystem>

#include "config/schema.h"
#include "core/base/error.h"
#include "roles/open.h"
#include "run/run_folder.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

template <class Model, class Config>
LoadedStage<Model> open_stage(const std::string& path, const std::string& task, Weights weights,
                              at::Device device) {
  require(!path.empty(), "[audiolm] no {} model given; use --{} RUN or --from FOLDER", task, task);
  return load_stage<Model, Config>(path, "audiolm", task, weights, device);
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

bool unique_consecutive(const StageRun& run) {
  static const nlohmann::ordered_json::json_pointer setting("/task/loss/unique_consecutive");
  return run.settings.value(setting, true);
}

void find_parts(const std::string& folder, AudioLmPaths& paths) {
  require(fs::is_directory(folder), "[audiolm] {} is not a folder of runs", folder);
  struct Part {
    std::vector<std::string> tasks;  // that its checkpoints say
    const char* flag;
    std::string& path;
    bool given;
  };
  const auto part = [](std::vector<std::string> tasks, const char* flag, std::string& path) {
    return Part{std::move(tasks), flag, path, !path.empty()};
  };
  std::vector<Part> parts = {part({"semantic"}, "semantic", paths.semantic),
                             part({"coarse"}, "coarse", paths.coarse),
                             part({"fine"}, "fine", paths.fine),
                             part({"semantic-tokenizer"}, "tokenizer", paths.tokenizer),
                             part({"soundstream", "encodec"}, "codec", paths.codec),
                             part({"t5"}, "text-encoder", paths.text)};
  std::vector<fs::path> places;
  for (const auto& entry : fs::directory_iterator(folder)) places.push_back(entry.path());
  std::sort(places.begin(), places.end());
  for (const fs::path& place : places) {
    const std::string kind = kind_of(place);
    for (Part& wanted : parts) {
      if (wanted.given || std::find(wanted.tasks.begin(), wanted.tasks.end(), kind) == wanted.tasks.end())
        continue;
      require(wanted.path.empty(), "[audiolm] {} has two parts of one kind, {} and {}; say which with --{}",
              folder, wanted.path, place.string(), wanted.flag);
      wanted.path = place.string();
    }
  }
}

AudioLm load_audiolm(const AudioLmPaths& paths, Weights weights, at::Device device) {
  const auto semantic =
      open_stage<SemanticTransformer, SemanticConfig>(paths.semantic, "semantic", weights, device);
  const auto coarse = open_stage<CoarseTransformer, CoarseConfig>(paths.coarse, "coarse", weights, device);
  AudioLm model;
  model.semantic = semantic.model;
  model.coarse = coarse.model;

  const std::string tokenizer =
      paths.tokenizer.empty() ? setting_of(semantic, "semantic_from") : paths.tokenizer;
  require(!tokenizer.empty(), "[audiolm] {} does not say where its tokenizer is; give --tokenizer FILE",
          semantic.path);
  model.tokenizer = open_semantic_tokenizer(tokenizer, device);
  const std::string codec = paths.codec.empty() ? setting_of(coarse, "codec_from") : paths.codec;
  require(!codec.empty(), "[audiolm] {} does not say where its codec is; give --codec RUN", coarse.path);
  model.codec = open_codec(codec, Weights::best, device);
  require_trained_with(semantic, "tokenizer", "semantic_identity", model.tokenizer->identity(),
                       "--tokenizer");
  require_trained_with(coarse, "tokenizer", "semantic_identity", model.tokenizer->identity(), "--tokenizer");
  require_trained_with(coarse, "codec", "codec_identity", model.codec->identity(), "--codec");
  model.unique_consecutive = unique_consecutive(semantic);
  require(model.unique_consecutive == unique_consecutive(coarse),
          "[audiolm] task.loss.unique_consecutive was {} for {} and {} for {}; train both alike",
          model.unique_consecutive, semantic.path, !model.unique_consecutive, coarse.path);
  if (!paths.fine.empty()) {
    const auto fine = open_stage<FineTransformer, FineConfig>(paths.fine, "fine", weights, device);
    model.fine = fine.model;
    require_trained_with(fine, "codec", "codec_identity", model.codec->identity(), "--codec");
  }
  if (model.needs_text_encoder()) {
    const std::string text = paths.text.empty() ? setting_of(semantic, "text_from") : paths.text;
    require(!text.empty(), "[audiolm] these models are conditioned on text; give --text_encoder FILE");
    model.text_encoder = open_text_encoder(text, device);
    if (model.semantic->stage().conditioned() && !model.semantic->stage().text.enabled())
      require_trained_with(semantic, "text encoder", "text_identity", model.text_encoder->identity(),
                           "--text_encoder");
  }
  model.check();
  return model;
}

}  // namespace melete
