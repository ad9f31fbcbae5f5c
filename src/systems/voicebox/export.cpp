// Voicebox as voicebox-pytorch's trainer saves it.
#include "config/schema.h"
#include "core/base/error.h"
#include "systems/voicebox/foreign_names.h"
#include "systems/voicebox/system.h"
#include "train/exporter.h"

namespace melete {

namespace {

using namespace voicebox;

constexpr const char* kInWrapper = "voicebox.";  // where the network stands in what its trainer saves

class VoiceboxExporter final : public Exporter {
 public:
  VoiceboxExporter(const Checkpoint& checkpoint, const std::string& path)
      : Exporter(checkpoint, path), model_(config_of(checkpoint)) {
    for (const auto& pair : voicebox_pytorch::pairs(*model_)) ours_[pair.theirs] = pair.ours;
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*model_); }

  Json weights_tree(ExportFor) override {
    return {{"model", state_dict([&](const std::string& ours) { return wanted(ours); })}};
  }

  Json training_tree() override {
    return {{"model", state_dict([&](const std::string& ours) { return stored("model." + ours); })},
            {"optim", optimiser()},
            {"scheduler", scheduler()}};
  }

 private:
  static VoiceboxConfig config_of(const Checkpoint& checkpoint) {
    VoiceboxConfig config;
    schema_of(config).apply(checkpoint.meta.at("config").at("model"));
    return config;
  }

  template <class Weight>
  Json state_dict(Weight weight) {
    const TensorMap like = voicebox_pytorch::state_dict(*model_);
    std::vector<std::string> names;
    for (const auto& [theirs, tensor] : like) names.push_back(theirs);
    Json entries = Json::array();
    for (const std::string& theirs : names) {
      const auto ours = ours_.find(theirs);
      const at::Tensor tensor =
          ours == ours_.end() ? like.at(theirs) : weight(ours->second).reshape(like.at(theirs).sizes());
      entries.push_back({kInWrapper + theirs, reference("model." + theirs, tensor)});
    }
    note("voicebox-pytorch builds this model with VoiceBox(" +
         voicebox_pytorch::voicebox_arguments(model_->config()).dump() + ")");
    return {{"$ordered", entries}};
  }

  // The state of torch.optim.Adam over the network's parameters.
  Json optimiser() {
    const Json& settings = checkpoint_.meta.at("config").at("task").at("optimiser");
    const TensorMap like = voicebox_pytorch::state_dict(*model_);
    const std::vector<std::string> order = voicebox_pytorch::optimiser_order(*model_);
    Json state = Json::array(), params = Json::array();
    for (size_t i = 0; i < order.size(); ++i) {
      params.push_back(i);
      const std::string key = "optimiser.network." + ours_.at(order[i]);
      if (!checkpoint_.tensors.count(key + ".first")) continue;  // never had a gradient
      const std::string place = fmt::format("optim.state.{}.", i);
      const auto moment = [&](const char* ours) {
        return stored(key + ours).reshape(like.at(order[i]).sizes());
      };
      state.push_back({i,
                       {{"step", reference(place + "step", stored(key + ".step").to(at::kFloat))},
                        {"exp_avg", reference(place + "exp_avg", moment(".first"))},
                        {"exp_avg_sq", reference(place + "exp_avg_sq", moment(".second"))}}});
    }
    require(!state.empty(), "[export] {} holds no optimiser; try --for finetune", path_);
    const Json group = {{"lr", settings.at("learning_rate")},
                        {"betas", {{"$tuple", {settings.at("beta1"), settings.at("beta2")}}}},
                        {"eps", settings.at("eps")},
                        {"weight_decay", settings.at("weight_decay")},
                        {"amsgrad", false},
                        {"maximize", false},
                        {"foreach", nullptr},
                        {"capturable", false},
                        {"differentiable", false},
                        {"fused", false},
                        {"initial_lr", settings.at("learning_rate")},
                        {"params", params}};
    return {{"state", {{"$dict", state}}}, {"param_groups", Json::array({group})}};
  }

  // Of torch's CosineAnnealingLR where this run stands.
  Json scheduler() const {
    const Json& config = checkpoint_.meta.at("config");
    const double rate = config.at("task").at("optimiser").at("learning_rate");
    const int64_t step = checkpoint_.meta.value("step", int64_t{0});
    return {{"T_max", config.at("train").at("steps")},
            {"eta_min", 0},
            {"base_lrs", Json::array({rate})},
            {"last_epoch", step},
            {"verbose", false},
            {"_step_count", step + 1},
            {"_get_lr_called_within_step", false},
            {"_last_lr", Json::array({rate})}};
  }

  Voicebox model_;
  std::map<std::string, std::string> ours_;  // our name of a weight by theirs
};

}  // namespace

std::unique_ptr<Exporter> make_voicebox_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<VoiceboxExporter>(checkpoint, path);
}

}  // namespace melete
