// SoundStream as audiolm-pytorch saves it.
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
    Json entries = Json::array();
    for (const std::string& ours : names()) {
      const std::string theirs = audiolm_pytorch::soundstream_name(ours, config_);
      if (!with_discriminators && audiolm_pytorch::belongs_to_discriminators(theirs)) continue;
      entries.push_back({theirs, reference(theirs, audiolm_pytorch::as_theirs(theirs, wanted(ours)))});
    }
    for (const auto& [theirs, tensor] : audiolm_pytorch::derived_tensors(config_)) {
      // What was imported is kept to the last bit.
      const auto original = checkpoint_.tensors.find("foreign.model." + theirs);
      entries.push_back(
          {theirs, reference(theirs, original == checkpoint_.tensors.end() ? tensor : original->second)});
    }
    Json config;
    if (checkpoint_.meta.contains("foreign"))
      config = checkpoint_.meta["foreign"]["tree"].value("config", Json());
    if (config.is_null())
      config = {{"$bytes", to_hex(json_to_pickle(audiolm_pytorch::soundstream_arguments(config_)))}};
    if (config_.multi_scale.channels != MultiScaleDiscriminatorConfig{}.channels && with_discriminators)
      note("audiolm-pytorch has no setting for these multi-scale discriminators");
    if (!config_.codec.as_audiolm_pytorch)
      note(
          "trained with model.codec.as_audiolm_pytorch = false: audiolm-pytorch computes some things "
          "differently (docs/differences.md) and may sound worse with these weights");
    return {{"model", {{"$ordered", entries}}},
            {"config", config},
            {"version", release(audiolm_pytorch::kRelease)}};
  }

  Json training_tree() override {
    fail(
        "[export] --for training writes a package of audiolm-pytorch again, and {} was not imported from "
        "one; "
        "try --for finetune",
        path_);
  }

 private:
  SoundStreamGanConfig config_;
  SoundStreamGan gan_{nullptr};
};

}  // namespace

std::unique_ptr<Exporter> make_soundstream_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<SoundStreamExporter>(checkpoint, path);
}

}  // namespace melete
