// AudioLM's transformers as audiolm-pytorch's trainers save them.
#include "config/schema.h"
#include "core/base/error.h"
#include "io/python_call.h"
#include "systems/audiolm/foreign_files.h"
#include "train/exporter.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

class StageExporter final : public Exporter {
 public:
  StageExporter(const Checkpoint& checkpoint, const std::string& path) : Exporter(checkpoint, path) {
    const std::string task = checkpoint.meta.value("task", "");
    if (task == "semantic")
      build<SemanticTransformer, SemanticConfig>("SemanticTransformer");
    else if (task == "coarse")
      build<CoarseTransformer, CoarseConfig>("CoarseTransformer");
    else
      fine_ = build<FineTransformer, FineConfig>("FineTransformer");
    for (const auto& pair : audiolm_pytorch::stage_pairs(*model_)) ours_[pair.theirs] = pair.ours;
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*model_); }

  Json weights_tree(ExportFor) override {
    return {{"model", state_dict([&](const std::string& ours) { return wanted(ours); })},
            {"version", release(audiolm_pytorch::kRelease)}};
  }

  Json training_tree() override {
    return {{"model", state_dict([&](const std::string& ours) { return stored("model." + ours); })},
            {"optim", optimiser()},
            {"version", release(audiolm_pytorch::kRelease)}};
  }

 private:
  template <class Model, class Config>
  Config build(const std::string& name) {
    Config config;
    schema_of(config).apply(checkpoint_.meta.at("config").at("model"));
    take_pieces(config.stage.text, checkpoint_.tensors, "model.text_encoder.pieces", path_);
    model_ = Model(config).ptr();
    arguments_ = python_call(name, audiolm_pytorch::stage_arguments(config));
    return config;
  }

  template <class Weight>
  Json state_dict(Weight weight) {
    std::vector<std::string> names;
    for (const auto& [theirs, tensor] : audiolm_pytorch::stage_state_dict(*model_)) names.push_back(theirs);
    audiolm_pytorch::sort_as_theirs(names);
    const TensorMap zeros = audiolm_pytorch::stage_state_dict(*model_);
    Json entries = Json::array();
    for (const std::string& theirs : names)
      entries.push_back({theirs, reference("model." + theirs, audiolm_pytorch::is_norm_shift(theirs)
                                                                  ? zeros.at(theirs)
                                                                  : weight(ours_.at(theirs)))});
    note("audiolm-pytorch builds this model with " + arguments_);
    if (!static_cast<StageImpl&>(*model_).text_encoder.is_empty())
      note(
          "its own text encoder stays behind: audiolm-pytorch takes embeddings made by T5 or given as "
          "text_embeds");
    if (fine_ && !fine_->positions_from_longest)
      note(
          "trained with model.positions_from_longest = false: audiolm-pytorch counts positions otherwise "
          "(docs/differences.md) and may sound worse with these weights");
    return {{"$ordered", entries}};
  }

  Json optimiser() {
    std::vector<std::string> order, parameters;
    for (const auto& [theirs, ours] : ours_) order.push_back(theirs);
    audiolm_pytorch::sort_as_theirs(order);
    for (const std::string& theirs : order) parameters.push_back(ours_.at(theirs));
    return optimiser_state("optim", "transformer", parameters,
                           checkpoint_.meta.at("config").at("task").at("optimiser"));
  }

  std::shared_ptr<torch::nn::Module> model_;
  std::string arguments_;
  std::optional<FineConfig> fine_;
  std::map<std::string, std::string> ours_;  // our name of a parameter by theirs
};

}  // namespace

std::unique_ptr<Exporter> make_stage_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<StageExporter>(checkpoint, path);
}

}  // namespace melete
