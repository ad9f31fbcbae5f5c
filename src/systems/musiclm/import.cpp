// MuLaN of musiclm-pytorch, with its optimiser.
#include "core/base/error.h"
#include "data/text_tokenizer.h"
#include "systems/musiclm/foreign_files.h"
#include "systems/musiclm/foreign_names.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task.h"
#include "train/foreign_package.h"

namespace melete {

namespace {

// CLIP's tokenizer is no part of the file; with its list of merges the checkpoint can read text.
void take_merges(const std::string& path, const musiclm::MulanConfig& config, ForeignPackage& package) {
  if (path.empty()) {
    package.notes().push_back(
        "the file does not hold CLIP's list of merges; give --arguments merges=bpe_simple_vocab_16e6.txt, or "
        "--text.merges when you train on, and texts can be read");
    return;
  }
  const ClipTokenizer tokenizer(path);
  require(tokenizer.vocabulary() == config.text.vocabulary,
          "[musiclm-pytorch] {} makes {} ids, the text tower has {}", path, tokenizer.vocabulary(),
          config.text.vocabulary);
  package.tensors()[kKeptPieces] = musiclm::kept_file(tokenizer);
}

}  // namespace

ImportedCheckpoint import_mulan(const PackageSource& source) {
  ForeignPackage package(source, kMulanTask);
  nlohmann::ordered_json given = source.given.is_null() ? nlohmann::ordered_json::object() : source.given;
  const std::string merges = given.value("merges", "");
  given.erase("merges");
  const musiclm_pytorch::MulanArguments arguments =
      musiclm_pytorch::arguments_of_file(package.state(), given, package.notes());
  const musiclm::MulanConfig config =
      musiclm_pytorch::mulan_config(arguments.audio, arguments.text, arguments.mulan);
  musiclm::Mulan model(config);
  musiclm_pytorch::load(*model, package.state());
  package.take_weights(musiclm_pytorch::pairs(*model));
  musiclm::MulanTaskConfig task;
  std::vector<std::string> order = package.parameter_names(*model);
  musiclm_pytorch::sort_as_theirs(order);
  const bool optimiser = package.read_optimiser("optim", kMulanTask, order, &task.phase);
  if (!optimiser) package.notes().push_back("the file has no optimiser: training starts it anew");
  package.notes().push_back(
      "SpecAugment is upstream's, which never stretches and can blank everything; "
      "--no-model.audio.augment.as_upstream makes it ours");
  take_merges(merges, config, package);

  const std::unique_ptr<Recipe> recipe = make_mulan_recipe();
  musiclm::MulanConfig settings = config;
  recipe->schema().apply({{"text", {{"tokenizer", "clip"}}},
                          {"model", schema_of(settings).json()},
                          {"task", schema_of(task).json()}});
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model->parameters()) parameters += parameter.numel();
  return package.finish(*recipe, {{kMulanTask, parameters}, {"total", parameters}}, optimiser);
}

}  // namespace melete
