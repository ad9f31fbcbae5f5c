#include "systems/musiclm/load.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/text_tokenizer.h"
#include "roles/open.h"
#include "run/kept_models.h"
#include "systems/audiolm/load.h"
#include "systems/musiclm/mulan_embedding.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task_stage.h"

namespace melete {

std::unique_ptr<JointEmbedding> open_mulan(const FoundCheckpoint& found) {
  return std::move(musiclm::load_mulan(found).embedding);
}

}  // namespace melete

namespace melete::musiclm {

namespace {

std::string task_of(const std::filesystem::path& path) {
  try {
    if (!std::filesystem::is_directory(path))
      return path.extension() == ".safetensors" ? read_checkpoint_meta(path.string()).value("task", "") : "";
    for (const CheckpointEntry& entry : list_checkpoints(path.string()))
      if (entry.problem.empty()) return read_checkpoint_meta(entry.path).value("task", "");
  } catch (const std::exception&) {
    // nothing of ours
  }
  return "";
}

std::string given_or_stored(const std::string& given, const StageRun& run, const char* setting,
                            const char* flag) {
  const std::string path = given.empty() ? setting_of(run, setting) : given;
  require(!path.empty(), "[musiclm] {} does not say where its {} is; give --{}", run.path, flag, flag);
  return path;
}

EmbedQuantizer load_condition(const FoundCheckpoint& found, Weights weights, at::Device device) {
  EmbedQuantizerConfig config;
  schema_of(config).apply(found.checkpoint.meta.at("config").at("condition"));
  EmbedQuantizer condition(config);
  condition->eval();
  load_weights(*condition, kConditionPlace, found, weights, "musiclm");
  condition->to(device);
  return condition;
}

// A stage and what stands for the text in it.
template <class Model>
struct MusicStage : LoadedStage<Model> {
  EmbedQuantizer condition{nullptr};
};

template <class Model, class Config>
MusicStage<Model> open_part(const std::string& path, const std::string& stage, Weights weights,
                            at::Device device) {
  require(!path.empty(), "[musiclm] no {} model given; use --{} RUN or --from FOLDER", stage, stage);
  using Loaded = MusicStage<Model>;
  return kept_model<Loaded>(music_stage_task(stage), path, weights_name(weights) + device.str(), [&] {
    const FoundCheckpoint found = open_checkpoint(path, "musiclm", music_stage_task(stage));
    Loaded loaded;
    loaded.path = found.path;
    loaded.settings = found.checkpoint.meta.at("config");
    Config config;
    schema_of(config).apply(loaded.settings.at("model"));
    loaded.model = Model(config);
    loaded.model->eval();
    load_weights(*loaded.model, kStagePlace, found, weights, "musiclm");
    loaded.model->to(device);
    loaded.condition = load_condition(found, weights, device);
    return loaded;
  });
}

}  // namespace

LoadedMulan load_mulan(const FoundCheckpoint& found) {
  const auto& settings = found.checkpoint.meta.at("config");
  MulanConfig config;
  schema_of(config).apply(settings.at("model"));
  TextTokenizerConfig text;
  schema_of(text).apply(settings.at("text"));
  if (const auto kept = found.checkpoint.tensors.find(kKeptPieces); kept != found.checkpoint.tensors.end()) {
    const at::Tensor bytes = kept->second.to(at::kCPU).contiguous();
    text.pieces.assign(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
  }
  Mulan model(config);
  model->eval();
  load_weights(*model, "", found, Weights::best, "mulan");
  // It hears best what is as long as what it was trained on.
  EmbeddingOptions options;
  const auto& data = settings.at("data");
  if (const double seconds = data.value("segment_seconds", 0.0); seconds > 0)
    options.window_seconds = seconds;
  LoadedMulan loaded;
  loaded.path = found.path;
  loaded.step = found.checkpoint.step();
  loaded.embedding = std::make_unique<MulanEmbedding>(model, make_text_tokenizer(text), options);
  const auto& task = settings.at("task");
  loaded.templates.captions = task.value("templates", Templates().captions);
  loaded.templates.tags = task.value("tag_templates", Templates().tags);
  loaded.data_from = settings.value("data_from", "");
  loaded.valid_from = settings.value("valid_from", "");
  loaded.valid_fraction = data.value("valid_fraction", 0.0);
  loaded.split_seed = data.value("split_seed", uint64_t{0});
  return loaded;
}

LoadedMulan load_mulan(const std::string& run_or_checkpoint, at::Device device) {
  LoadedMulan loaded = load_mulan(open_checkpoint(run_or_checkpoint, "mulan", kMulanTask));
  loaded.embedding->move_to(device);
  return loaded;
}

void find_parts(const std::string& folder, MusicLmPaths& paths) {
  namespace fs = std::filesystem;
  require(fs::is_directory(folder), "[musiclm] {} is not a folder of runs", folder);
  struct Part {
    std::vector<std::string> tasks;
    const char* flag;
    std::string* path;
    bool given;
  };
  std::vector<Part> parts = {{{music_stage_task("semantic")}, "semantic", &paths.semantic, false},
                             {{music_stage_task("coarse")}, "coarse", &paths.coarse, false},
                             {{music_stage_task("fine")}, "fine", &paths.fine, false},
                             {{kMulanTask}, "embedding", &paths.embedding, false},
                             {{"semantic-tokenizer"}, "tokenizer", &paths.tokenizer, false},
                             {{"soundstream", "encodec"}, "codec", &paths.codec, false}};
  for (Part& part : parts) part.given = !part.path->empty();
  std::vector<fs::path> places;
  for (const auto& entry : fs::directory_iterator(folder)) places.push_back(entry.path());
  std::sort(places.begin(), places.end());
  for (const fs::path& place : places) {
    const std::string task = task_of(place);
    for (Part& part : parts) {
      if (part.given || std::find(part.tasks.begin(), part.tasks.end(), task) == part.tasks.end()) continue;
      require(part.path->empty(), "[musiclm] {} has two parts of one kind, {} and {}; say which with --{}",
              folder, *part.path, place.string(), part.flag);
      *part.path = place.string();
    }
  }
}

MusicLm load_musiclm(const MusicLmPaths& paths, Weights weights, at::Device device) {
  const auto semantic =
      open_part<SemanticTransformer, SemanticConfig>(paths.semantic, "semantic", weights, device);
  const auto coarse = open_part<CoarseTransformer, CoarseConfig>(paths.coarse, "coarse", weights, device);
  MusicLm model;
  model.embedding =
      open_joint_embedding(given_or_stored(paths.embedding, semantic, "condition_from", "embedding"), device);
  model.audiolm.tokenizer = open_semantic_tokenizer(
      given_or_stored(paths.tokenizer, semantic, "semantic_from", "tokenizer"), device);
  model.audiolm.codec =
      open_codec(given_or_stored(paths.codec, coarse, "codec_from", "codec"), Weights::best, device);
  model.audiolm.semantic = semantic.model;
  model.audiolm.coarse = coarse.model;
  model.conditions.emplace("semantic", semantic.condition);
  model.conditions.emplace("coarse", coarse.condition);
  for (const StageRun* run :
       {static_cast<const StageRun*>(&semantic), static_cast<const StageRun*>(&coarse)}) {
    require_trained_with(*run, "joint embedding", "condition_identity", model.embedding->identity(),
                         "--embedding");
    require_trained_with(*run, "tokenizer", "semantic_identity", model.audiolm.tokenizer->identity(),
                         "--tokenizer");
  }
  require_trained_with(coarse, "codec", "codec_identity", model.audiolm.codec->identity(), "--codec");
  if (!paths.fine.empty()) {
    const auto fine = open_part<FineTransformer, FineConfig>(paths.fine, "fine", weights, device);
    model.audiolm.fine = fine.model;
    model.conditions.emplace("fine", fine.condition);
    require_trained_with(fine, "joint embedding", "condition_identity", model.embedding->identity(),
                         "--embedding");
    require_trained_with(fine, "codec", "codec_identity", model.audiolm.codec->identity(), "--codec");
  }
  model.check();
  return model;
}

}  // namespace melete::musiclm
