// Voicebox as voicebox-pytorch's trainer saves it.
#include <algorithm>

#include "config/schema.h"
#include "core/base/error.h"
#include "io/python_call.h"
#include "systems/voicebox/foreign_names.h"
#include "systems/voicebox/system.h"
#include "train/exporter.h"
#include "train/schedule.h"
#include "train/torch_optimiser.h"

namespace melete {

namespace {

using namespace voicebox;

constexpr const char* kInWrapper = "voicebox.";  // where the network stands in what its trainer saves

class VoiceboxExporter final : public Exporter {
 public:
  VoiceboxExporter(const Checkpoint& checkpoint, const std::string& path)
      : Exporter(checkpoint, path), model_(config_of(checkpoint)) {
    require(!model_->config().skip_noise,
            "[export] {} was trained with model.skip_noise, which voicebox-pytorch does not know", path);
    require(model_->config().draft.dim == 0,
            "[export] {} was trained with a draft (model.draft.dim), which voicebox-pytorch does not know",
            path);
    for (const auto& pair : voicebox_pytorch::pairs(*model_)) ours_[pair.theirs] = pair.ours;
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*model_); }

  Json weights_tree(ExportFor) override {
    return {{"model", state_dict([&](const std::string& ours) { return wanted(ours); })}};
  }

  Json training_tree() override {
    note(fmt::format("its trainer reads the step from the file's name: to go on here, call it voicebox.{}.pt",
                     checkpoint_.meta.value("step", int64_t{0}) - 1));
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
    voicebox_pytorch::sort_as_theirs(names);
    Json entries = Json::array();
    for (const std::string& theirs : names) {
      const auto ours = ours_.find(theirs);
      const at::Tensor tensor =
          ours == ours_.end() ? like.at(theirs) : weight(ours->second).reshape(like.at(theirs).sizes());
      entries.push_back({kInWrapper + theirs, reference("model." + theirs, tensor)});
    }
    note("voicebox-pytorch builds this model with " +
         python_call("VoiceBox", voicebox_pytorch::voicebox_arguments(model_->config())));
    return {{"$ordered", entries}};
  }

  // As its trainer's optimiser saves itself, with what its scheduler has put there.
  Json optimiser() {
    TorchOptimiser like{.phase = "network",
                        .settings = checkpoint_.meta.at("config").at("task").at("optimiser"),
                        .path = path_};
    const TensorMap shapes = voicebox_pytorch::state_dict(*model_);
    for (const std::string& theirs : voicebox_pytorch::optimiser_order(*model_)) {
      like.order.push_back(ours_.at(theirs));
      like.shapes[like.order.back()] = shapes.at(theirs).sizes().vec();
    }
    Json state = torch_optimiser_state(
        checkpoint_, like, [&](const std::string& name, const at::Tensor& t) { return reference(name, t); });
    for (Json& group : state["param_groups"]) {
      const Json parameters = group.at("params");
      group.erase("params");  // stands last in theirs
      group["lr"] = standing().rate;
      group["initial_lr"] = like.settings.at("learning_rate");
      group["params"] = parameters;
    }
    return state;
  }

  // Where torch's CosineAnnealingLR stands so that its next rate is this run's next one: it goes on from the
  // rate in force, counts the steps after the warm-up, and counts one before it looks.
  struct Standing {
    double rate = 0, minimum = 0;  // rate: of the last step
    int64_t last = 0, period = 1;
  };
  Standing standing() const {
    const Json& config = checkpoint_.meta.at("config");
    const double full = config.at("task").at("optimiser").at("learning_rate");
    const int64_t run_steps = config.at("train").at("steps");
    const int64_t step = checkpoint_.meta.value("step", int64_t{0});
    ScheduleConfig schedule;
    schema_of(schedule).apply(config.at("task").at("schedule"));
    const int64_t warmup = schedule.warmup_steps;
    Standing where;
    where.rate = step > 0 ? Schedule(schedule, full, run_steps).rate(step - 1) : full;
    where.minimum = schedule.minimum;
    where.last = step < warmup ? 0 : step - warmup - 1;
    where.period = std::max<int64_t>(1, schedule.decay_steps > 0 ? schedule.decay_steps : run_steps - warmup);
    if (schedule.kind == "cosine") return where;
    where.last = 0;
    where.period = std::max<int64_t>(1, run_steps - step);
    if (schedule.kind == "constant") where.minimum = full;  // a cosine from there to there
    return where;
  }

  Json scheduler() {
    const Json& config = checkpoint_.meta.at("config");
    const std::string kind = config.at("task").at("schedule").value("kind", "cosine");
    if (kind != "cosine" && kind != "constant")
      note("voicebox-pytorch has no schedule " + kind +
           ": it will lead in a cosine from the rate in force to the end of the run");
    const Standing where = standing();
    return {{"T_max", where.period},
            {"eta_min", where.minimum},
            {"base_lrs", Json::array({config.at("task").at("optimiser").at("learning_rate")})},
            {"last_epoch", where.last},
            {"verbose", false},
            {"_step_count", where.last + 1},
            {"_get_lr_called_within_step", false},
            {"_last_lr", Json::array({where.rate})}};
  }

  Voicebox model_;
  std::map<std::string, std::string> ours_;  // our name of a weight by theirs
};

}  // namespace

std::unique_ptr<Exporter> make_voicebox_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<VoiceboxExporter>(checkpoint, path);
}

}  // namespace melete
