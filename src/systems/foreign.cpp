#include "systems/foreign.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "run/load_weights.h"
#include "systems/system.h"

namespace melete {

namespace {

// Checkpoints of any task, as melete's own weights.
class PlainExporter final : public Exporter {
 public:
  PlainExporter(const Checkpoint& checkpoint, const std::string& path, const std::string& task)
      : Exporter(checkpoint, path), task_(task) {}

 protected:
  std::vector<std::string> names() override {
    std::vector<std::string> all;
    for (const auto& [key, tensor] : checkpoint_.part("model.")) all.push_back(key);
    return all;
  }
  Json weights_tree(ExportFor) override {
    fail("[export] no Python system reads a `{}`; write a .safetensors file", task_);
  }
  Json training_tree() override { return weights_tree(ExportFor::training); }

 private:
  std::string task_;
};

std::unique_ptr<Exporter> make_exporter(const FoundCheckpoint& found) {
  const std::string task = found.checkpoint.meta.value("task", "");
  for (const System& system : systems())
    for (const Trainable& trainable : system.trains)
      if (trainable.name == task && trainable.exporter)
        return trainable.exporter(found.checkpoint, found.path);
  return std::make_unique<PlainExporter>(found.checkpoint, found.path, task);
}

std::string first_name(const PickleValue& state) {
  if (state.dict()->entries.empty()) return "nothing";
  const std::string* text = state.dict()->entries.front().first->text();
  return text ? "`" + printable(*text) + "`" : "something without a name";
}

}  // namespace

std::vector<std::string> foreign_sources() {
  std::vector<std::string> names;
  for (const System& system : systems())
    for (const ForeignModel& model : system.imports)
      if (std::find(names.begin(), names.end(), model.from) == names.end()) names.push_back(model.from);
  return names;
}

ImportedCheckpoint import_foreign(const std::string& from, const std::string& path,
                                  const nlohmann::ordered_json& arguments) {
  const at::NoGradGuard no_grad;
  const TorchFile file(path);
  require(file.root().is(PickleValue::Kind::dict), "[{}] expected a dict of weights, got a {}", path,
          file.root().kind_name());
  const PickleValue* model = file.root().find("model");
  const bool package = model != nullptr && model->is(PickleValue::Kind::dict);
  const PackageSource source{from, path, file, package ? model : &file.root(), package, arguments};
  std::vector<std::string> known;
  for (const System& system : systems())
    for (const ForeignModel& kind : system.imports) {
      if (kind.from != from) continue;
      if (source.state->find(kind.mark)) {
        ImportedCheckpoint imported = kind.import(source);
        const PickleValue* version = package ? file.root().find("version") : nullptr;
        imported.notes.push_back(
            version && version->text()
                ? fmt::format("the file was made by {} {}", from, printable(*version->text()))
                : fmt::format("the file does not say which version of {} made it", from));
        return imported;
      }
      known.push_back(kind.kind);
    }
  fail(
      "[{}] not a model that melete can import (it begins with {}); known of {}: {}. `melete inspect` shows "
      "what is in it",
      path, first_name(*source.state), from, fmt::join(known, ", "));
}

std::vector<std::string> export_checkpoint(const std::string& run_or_checkpoint, const std::string& out,
                                           const ExportRequest& request) {
  const at::NoGradGuard no_grad;
  const FoundCheckpoint found = open_checkpoint(run_or_checkpoint, "export");
  const std::string extension = std::filesystem::path(out).extension().string();
  const std::unique_ptr<Exporter> exporter = make_exporter(found);
  // A package to go on from holds both.
  if (request.purpose != ExportFor::training)
    tell_weights({found.path, request.weights,
                  request.weights == Weights::best && !found.checkpoint.part("ema.average.").empty()});
  if (extension == ".pt" || extension == ".pth") return exporter->write_torch(out, request);
  require(extension == ".safetensors",
          "[export] expected an output ending in .pt (for a Python system) or .safetensors (melete), got {}",
          out);
  require(request.purpose != ExportFor::training,
          "[export] a checkpoint that training goes on from is what {} already is; try copying it",
          found.path);
  return exporter->write_ours(out, request);
}

}  // namespace melete
