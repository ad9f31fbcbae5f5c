// AudioLM's transformers of audiolm-pytorch, with their optimiser.
#include <torch/nn/module.h>

#include "core/base/error.h"
#include "systems/audiolm/foreign_files.h"
#include "systems/audiolm/task.h"
#include "train/foreign_package.h"

namespace melete {

namespace {

template <class Model, class Config>
ImportedCheckpoint import_as(ForeignPackage package, const std::string& kind, Config config) {
  Model model(config);
  audiolm_pytorch::load_stage(*model, package.state());
  package.take_weights(audiolm_pytorch::stage_pairs(*model));
  StageTaskConfig task;
  const bool optimiser =
      package.read_optimiser("optim", "transformer", package.parameter_names(*model), &task.phase);
  if (!optimiser) package.notes().push_back("the file has no optimiser: training starts it anew");
  package.notes().push_back(
      kind == "fine"
          ? "the file does not say whose codes it was trained on; give its codec to train and generate"
          : "the file does not say whose tokens it was trained on; give its tokenizer (and codec) to "
            "train and generate");

  // Its tokenizers are still to be named: nothing is settled before that.
  const std::unique_ptr<Recipe> recipe = make_recipe(kind);
  recipe->schema().apply({{"model", schema_of(config).json()}, {"task", schema_of(task).json()}});
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model->parameters()) parameters += parameter.numel();
  return package.finish(*recipe, {{"transformer", parameters}, {"total", parameters}}, optimiser);
}

}  // namespace

ImportedCheckpoint import_stage(const PackageSource& source, const std::string& kind) {
  ForeignPackage package(source, kind);
  const auto arguments =
      audiolm_pytorch::stage_arguments_of_file(kind, package.state(), source.given, package.notes());
  if (kind == "semantic")
    return import_as<SemanticTransformer>(std::move(package), kind,
                                          audiolm_pytorch::semantic_config(arguments));
  if (kind == "coarse")
    return import_as<CoarseTransformer>(std::move(package), kind, audiolm_pytorch::coarse_config(arguments));
  return import_as<FineTransformer>(std::move(package), kind, audiolm_pytorch::fine_config(arguments));
}

}  // namespace melete
