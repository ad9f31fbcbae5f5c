#include "io/foreign_file.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/error.h"
#include "io/pickled_tensors.h"

namespace melete {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kDeepest = 16;  // of a configuration inside a pickle

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, false);
  require(json.is_object(), "[read {}] expected a JSON object", path.string());
  return json;
}

// Settings in a pickle, omegaconf's wrappers taken off. What is no setting becomes null.
Json to_json(const PickleValue& value, int depth = 0) {
  if (depth > kDeepest) return nullptr;
  using Kind = PickleValue::Kind;
  if (value.is(Kind::object)) {
    if (const PickleValue* content = value.find("_content")) return to_json(*content, depth + 1);
    if (const PickleValue* held = value.find("_val")) return to_json(*held, depth + 1);
    const PickleObject* object = value.object();
    if (object != nullptr && object->state != nullptr) return to_json(*object->state, depth + 1);
    return nullptr;
  }
  if (value.is(Kind::boolean)) return value.integer().value_or(0) != 0;
  if (value.is(Kind::integer)) return value.integer() ? Json(*value.integer()) : Json(nullptr);
  if (value.is(Kind::real)) return *value.number();
  if (value.is(Kind::text)) return *value.text();
  if (const PickleValue::Items* items = value.items()) {
    Json list = Json::array();
    for (const PickleValue* item : *items) list.push_back(to_json(*item, depth + 1));
    return list;
  }
  if (const PickleDict* dict = value.dict()) {
    Json object = Json::object();
    for (const auto& [key, held] : dict->entries)
      if (key->text()) object[*key->text()] = to_json(*held, depth + 1);
    return object;
  }
  return nullptr;
}

bool has_tensors(const PickleValue& value) {
  const PickleDict* dict = value.dict();
  if (dict == nullptr) return false;
  for (const auto& [key, held] : dict->entries)
    if (held->tensor() != nullptr) return true;
  return false;
}

void read_torch(const std::string& path, ForeignFile& result) {
  const TorchFile file(path);
  const PickleValue& root = file.root();
  const PickleValue* weights = &root;
  for (const char* key : {"model", "state_dict", "best_state"})
    if (const PickleValue* part = root.find(key); part != nullptr && has_tensors(*part)) {
      weights = part;
      break;
    }
  require(has_tensors(*weights), "[read {}] expected weights by name, or a checkpoint with a `model`", path);
  result.tensors = tensors_below(*weights, file.mapping());
  if (const PickleValue* cfg = root.find("cfg"); cfg != nullptr && !cfg->is_none()) {
    const Json settings = to_json(*cfg);
    if (settings.is_object() && settings.contains("model")) result.model = settings["model"];
    if (settings.is_object() && settings.contains("task")) result.task = settings["task"];
  } else if (const PickleValue* args = root.find("args"); args != nullptr && !args->is_none()) {
    result.model = result.task = to_json(*args);
  }
  if (!result.model.is_object()) result.model = nullptr;
  if (!result.task.is_object()) result.task = nullptr;
}

// A safetensors file begins with a length of eight bytes, which may look like anything, and a brace.
bool begins_like_torch(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  char first[9] = {};
  file.read(first, 9);
  if (file.gcount() == 9 && first[8] == '{' && first[6] == 0 && first[7] == 0) return false;
  return file.gcount() >= 2 && ((first[0] == 'P' && first[1] == 'K') || first[0] == '\x80');
}

void read_weights(const fs::path& path, ForeignFile& result) {
  require(fs::exists(path), "[read {}] there is no such file", path.string());
  if (begins_like_torch(path))
    read_torch(path.string(), result);
  else
    result.tensors = read_tensors(path.string());
}

// The parts that an index of Hugging Face names, all in one.
void read_shards(const fs::path& index, ForeignFile& result) {
  const Json json = read_json(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : json.at("weight_map").items()) names.insert(file.get<std::string>());
  for (const std::string& name : names) {
    require(fs::path(name).filename() == name, "[read {}] names the part `{}` outside its folder",
            index.string(), name);
    ForeignFile part;
    read_weights(index.parent_path() / name, part);
    for (auto& [tensor, value] : part.tensors) result.tensors.insert_or_assign(tensor, value);
  }
}

}  // namespace

ForeignFile read_foreign(const std::string& file_or_folder) {
  ForeignFile result;
  fs::path path = file_or_folder;
  if (fs::is_directory(path)) {
    fs::path found;
    for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                             "pytorch_model.bin.index.json"})
      if (found.empty() && fs::exists(path / name)) found = path / name;
    require(!found.empty(), "[read {}] expected model.safetensors or pytorch_model.bin in that folder",
            file_or_folder);
    path = found;
  }
  result.path = path.string();
  if (path.string().ends_with(".index.json"))
    read_shards(path, result);
  else
    read_weights(path, result);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (fs::exists(folder / "config.json")) result.config = read_json(folder / "config.json");
  if (result.config.is_object() && fs::exists(folder / "preprocessor_config.json"))
    result.config["do_normalize"] =
        read_json(folder / "preprocessor_config.json").value("do_normalize", false);
  return result;
}

at::Tensor read_sklearn_centroids(const std::string& path) {
  const PickleFile file(path);
  const PickleValue* centres = file.root().find("cluster_centers_");
  require(centres != nullptr && centres->tensor() != nullptr && centres->tensor()->shape.size() == 2,
          "[read {}] expected a fitted k-means of scikit-learn (cluster_centers_ of two dimensions)", path);
  return to_tensor(*centres->tensor(), file.mapping(), "cluster_centers_")
      .to(at::kFloat)
      .contiguous()
      .clone();
}

}  // namespace melete
