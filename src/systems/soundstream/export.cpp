// SoundStream as audiolm-pytorch saves it.
#include <algorithm>
#include <functional>

#include "config/schema.h"
#include "core/base/error.h"
#include "io/base/pickle_json.h"
#include "systems/soundstream/foreign_files.h"
#include "systems/soundstream/system.h"

namespace melete {

namespace {

std::string to_hex(const std::string& bytes) {
  std::string result;
  for (const char c : bytes) result += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return result;
}

class SoundStreamExporter final : public Exporter {
 public:
  SoundStreamExporter(const Checkpoint& checkpoint, const std::string& path) : Exporter(checkpoint, path) {
    schema_of(config_).apply(checkpoint.meta.at("config").at("model"));
    gan_ = SoundStreamGan(config_);
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*gan_); }
  bool used_in_inference(const std::string& ours) const override { return ours.starts_with("codec."); }

  Json weights_tree(ExportFor purpose) override {
    const bool with_discriminators = purpose == ExportFor::finetune;
    const auto weight = [this](const std::string& ours) { return wanted(ours); };
    note_differences(with_discriminators);
    return {{"model", {{"$ordered", state_dict("", weight, with_discriminators)}}},
            {"config", arguments()},
            {"version", release(audiolm_pytorch::kRelease)}};
  }

  Json training_tree() override {
    const auto online = [this](const std::string& ours) { return stored("model." + ours); };
    note_differences(true);
    Json tree = {
        {"model", {{"$ordered", state_dict("", online, true)}}},
        {"optim", optimiser("optim", "generator", audiolm_pytorch::generator_order(parameters_below("")))},
        {"config", arguments()},
        {"discr_optim", optimiser("discr_optim", "discriminator", parameters_below("stft_discriminator."))},
        {"version", release(audiolm_pytorch::kRelease)}};
    if (checkpoint_.tensors.count("ema.step"))
      tree["ema_model"] = average();
    else
      note("it has no moving average: give its trainer use_ema = False");
    for (size_t i = 0; i < config_.discriminator_scales.size(); ++i) {
      const std::string key = fmt::format("multiscale_discr_optimizer_{}", i);
      tree[key] = optimiser(key, "discriminator", parameters_below(fmt::format("discriminators.{}.", i)));
    }
    note(fmt::format(
        "audiolm-pytorch reads the step from the file's name: soundstream.{}.pt goes on at step {}",
        std::max<int64_t>(0, checkpoint_.step() - 1), checkpoint_.step()));
    return tree;
  }

 private:
  using Weight = std::function<at::Tensor(const std::string& ours)>;

  // Pairs of their name and a tensor, as PyTorch lists them. place: before the names, in the tree.
  Json state_dict(const std::string& place, const Weight& weight, bool with_discriminators) {
    const TensorMap derived = audiolm_pytorch::derived_tensors(config_);
    std::map<std::string, std::string> ours;
    std::vector<std::string> theirs;
    for (const std::string& name : names()) {
      const std::string their = audiolm_pytorch::soundstream_name(name, config_);
      if (!with_discriminators && audiolm_pytorch::belongs_to_discriminators(their)) continue;
      ours[their] = name;
      theirs.push_back(their);
    }
    for (const auto& [name, tensor] : derived) theirs.push_back(name);
    audiolm_pytorch::sort_as_theirs_codec(theirs);
    Json entries = Json::array();
    for (const std::string& name : theirs) {
      // What was imported is kept to the last bit.
      const auto original = checkpoint_.tensors.find("foreign.model." + name);
      const at::Tensor tensor = ours.count(name) ? audiolm_pytorch::as_theirs(name, weight(ours.at(name)))
                                : original != checkpoint_.tensors.end() ? original->second
                                                                        : derived.at(name);
      entries.push_back({place + name, reference(place + name, tensor)});
    }
    return entries;
  }

  // Their names of parameters, as PyTorch lists them.
  std::vector<std::string> parameters_below(const std::string& prefix) {
    std::vector<std::string> theirs;
    for (const auto& item : gan_->named_parameters()) {
      const std::string name = audiolm_pytorch::soundstream_name(item.key(), config_);
      if (!name.starts_with(prefix)) continue;
      ours_[name] = item.key();
      theirs.push_back(name);
    }
    audiolm_pytorch::sort_as_theirs_codec(theirs);
    return theirs;
  }

  // An Adam with upstream's schedule and warm-up around it.
  Json optimiser(const std::string& place, const std::string& phase, const std::vector<std::string>& theirs) {
    const Json& settings = checkpoint_.meta.at("config").at(phase);
    std::vector<std::string> parameters;
    for (const std::string& name : theirs) parameters.push_back(ours_.at(name));
    Json inner = optimiser_state(place + ".optimizer", phase, parameters, settings.at("optimiser"));
    const Json rate = settings.at("optimiser").at("learning_rate");
    const int64_t step = checkpoint_.step();
    const auto warmup = std::max<int64_t>(1, settings.at("schedule").at("warmup_steps").get<int64_t>());
    Json rates = Json::array(), none = Json::array(), periods = Json::array();
    for (Json& group : inner["param_groups"]) {  // one of each for every group
      group["initial_lr"] = rate;
      rates.push_back(rate);
      none.push_back(nullptr);
      periods.push_back({{"warmup_period", warmup}});
    }
    return {{"optimizer", inner},
            {"scheduler",
             {{"base_lrs", rates},
              {"last_epoch", step},
              {"verbose", false},
              {"_step_count", step + 1},
              {"_get_lr_called_within_step", false},
              {"_last_lr", rates},
              {"lr_lambdas", none}}},
            {"warmup", {{"warmup_params", periods}, {"last_step", step}, {"lrs", rates}}}};
  }

  // The state of ema_pytorch's EMA: both models in one.
  Json average() {
    const auto online = [this](const std::string& ours) { return stored("model." + ours); };
    const auto averaged = [this](const std::string& ours) {
      const auto found = checkpoint_.tensors.find("ema.average." + ours);
      return found != checkpoint_.tensors.end() ? found->second : stored("model." + ours);
    };
    Json entries = Json::array();
    entries.push_back({"initted", reference("ema_model.initted", stored("ema.started").to(at::kBool))});
    entries.push_back({"step", reference("ema_model.step", stored("ema.step").to(at::kLong))});
    for (const auto& [prefix, weight] : {std::pair<const char*, Weight>{"online_model.", online},
                                         std::pair<const char*, Weight>{"ema_model.", averaged}})
      for (Json& entry : state_dict(prefix, weight, true)) entries.push_back(std::move(entry));
    return {{"$ordered", entries}};
  }

  Json arguments() const {
    Json config;
    if (checkpoint_.meta.contains("foreign"))
      config = checkpoint_.meta["foreign"]["tree"].value("config", Json());
    if (!config.is_null()) return config;
    return {{"$bytes", to_hex(json_to_pickle(audiolm_pytorch::soundstream_arguments(config_)))}};
  }

  void note_differences(bool with_discriminators) {
    if (config_.multi_scale.channels != MultiScaleDiscriminatorConfig{}.channels && with_discriminators)
      note("audiolm-pytorch has no setting for these multi-scale discriminators");
    if (config_.stft.window_shape != "hann" && with_discriminators)
      note(fmt::format(
          "its STFT discriminator has a {} window: give complex_stft_discr_kwargs a stft_window_fn there",
          config_.stft.window_shape));
    if (!config_.codec.as_audiolm_pytorch)
      note(
          "trained with model.codec.as_audiolm_pytorch = false: audiolm-pytorch computes some things "
          "differently (docs/differences.md) and may sound worse with these weights");
  }

  std::map<std::string, std::string> ours_;  // our name of a parameter by theirs
  SoundStreamGanConfig config_;
  SoundStreamGan gan_{nullptr};
};

}  // namespace

std::unique_ptr<Exporter> make_soundstream_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<SoundStreamExporter>(checkpoint, path);
}

}  // namespace melete
