#include "tasks/import_audiolm.h"

#include <functional>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "tasks/audiolm_package.h"

namespace melete {

namespace {

struct Kind {
  const char* name;
  const char* mark;  // a weight that only this kind of model has
  std::function<ImportedCheckpoint(const PackageSource&)> import;
};

// A further kind of model is a row here.
const std::vector<Kind>& kinds() {
  const auto stage = [](const char* name) {
    return [name](const PackageSource& source) { return import_stage(source, name); };
  };
  static const std::vector<Kind> table = {
      {"soundstream", "encoder.0.conv.weight", import_soundstream},
      {"semantic", "start_token", stage("semantic")},
      {"coarse", "semantic_start_token", stage("coarse")},
      {"fine", "fine_start_token", stage("fine")},
  };
  return table;
}

}  // namespace

ImportedCheckpoint import_audiolm_pytorch(const std::string& path, const nlohmann::ordered_json& arguments) {
  const at::NoGradGuard no_grad;
  const TorchFile file(path);
  require(file.root().is(PickleValue::Kind::dict), "[{}] expected a dict of weights, got a {}", path,
          file.root().kind_name());
  const PickleValue* model = file.root().find("model");
  const bool package = model != nullptr && model->is(PickleValue::Kind::dict);
  const PackageSource source{path, file, package ? model : &file.root(), package, arguments};
  std::string known;
  for (const Kind& kind : kinds()) {
    if (source.state->find(kind.mark)) return kind.import(source);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  std::string first = "nothing";
  if (!source.state->dict()->entries.empty())
    if (const std::string* text = source.state->dict()->entries.front().first->text())
      first = "`" + printable(*text) + "`";
  fail(
      "[{}] not a model that melete can import (it begins with {}); known of audiolm-pytorch: {}. `melete "
      "inspect` shows what is in it",
      path, first, known);
}

}  // namespace melete
