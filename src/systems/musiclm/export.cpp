// MuLaN as musiclm-pytorch's trainer saves it.
#include "config/schema.h"
#include "core/base/error.h"
#include "io/python_call.h"
#include "systems/musiclm/foreign_files.h"
#include "systems/musiclm/foreign_names.h"
#include "systems/musiclm/system.h"
#include "train/exporter.h"

namespace melete {

namespace {

class MulanExporter final : public Exporter {
 public:
  MulanExporter(const Checkpoint& checkpoint, const std::string& path) : Exporter(checkpoint, path) {
    schema_of(config_).apply(checkpoint.meta.at("config").at("model"));
    model_ = musiclm::Mulan(config_);
    for (const NamedPair& pair : musiclm_pytorch::pairs(*model_)) ours_[pair.theirs] = pair.ours;
  }

 protected:
  std::vector<std::string> names() override { return tensor_names(*model_); }

  Json weights_tree(ExportFor) override {
    return {{"model", state_dict([&](const std::string& ours) { return wanted(ours); })}};
  }

  Json training_tree() override {
    return {{"model", state_dict([&](const std::string& ours) { return stored("model." + ours); })},
            {"optim", optimiser()}};
  }

 private:
  template <class Weight>
  Json state_dict(Weight weight) {
    const TensorMap derived = musiclm_pytorch::derived_tensors(config_);
    std::vector<std::string> all;
    for (const auto& [theirs, ours] : ours_) all.push_back(theirs);
    for (const auto& [theirs, tensor] : derived) all.push_back(theirs);
    musiclm_pytorch::sort_as_theirs(all);
    Json entries = Json::array();
    for (const std::string& theirs : all) {
      const auto made = derived.find(theirs);
      entries.push_back({theirs, reference("model." + theirs,
                                           made != derived.end() ? made->second : weight(ours_.at(theirs)))});
    }
    say_how_to_build();
    return {{"$ordered", entries}};
  }

  void say_how_to_build() {
    const musiclm_pytorch::MulanArguments arguments = musiclm_pytorch::arguments_of(config_);
    note("musiclm-pytorch builds this model with\n  audio = " +
         python_call("AudioSpectrogramTransformer", arguments.audio) +
         "\n  text = " + python_call("TextTransformer", arguments.text) +
         "\n  mulan = MuLaN(audio, text, **" + python_call("dict", arguments.mulan) + ")");
    if (const std::string kind = checkpoint_.meta.at("config").at("text").value("tokenizer", "");
        kind != "clip")
      note(fmt::format(
          "its texts were tokenized as {}: give musiclm-pytorch token ids, its own tokenizer is CLIP's",
          kind));
  }

  Json optimiser() {
    std::vector<std::string> theirs;
    for (const auto& [name, ours] : ours_) theirs.push_back(name);
    musiclm_pytorch::sort_as_theirs(theirs);
    std::vector<std::string> parameters;
    for (const std::string& name : theirs) parameters.push_back(ours_.at(name));
    return optimiser_state("optim", kMulanTask, parameters,
                           checkpoint_.meta.at("config").at("task").at("optimiser"));
  }

  musiclm::MulanConfig config_;
  musiclm::Mulan model_{nullptr};
  std::map<std::string, std::string> ours_;  // our name of a parameter by theirs
};

}  // namespace

std::unique_ptr<Exporter> make_mulan_exporter(const Checkpoint& checkpoint, const std::string& path) {
  return std::make_unique<MulanExporter>(checkpoint, path);
}

}  // namespace melete
