#include "systems/musiclm/embedding_folder.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/npy.h"

namespace melete::musiclm {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWhole = "embeddings.safetensors";
constexpr const char* kFormat = "melete embeddings";

Json json_of(const EmbeddedItem& item) {
  Json line;
  if (!item.path.empty()) line["path"] = item.path;
  line["text"] = item.text;
  if (item.frames > 0) line["frames"] = item.frames;
  return line;
}

EmbeddedItem item_of(const Json& line) {
  return {line.value("path", ""), line.value("text", ""), line.value("frames", int64_t{0})};
}

TextMap metadata_of(const Embeddings& embeddings) {
  return {{"format", kFormat}, {"identity", embeddings.identity}, {"side", embeddings.side}};
}

// A file of rows; its items are in its metadata, or (the whole) in items.jsonl beside it.
Embeddings read_rows(const fs::path& path) {
  const SafetensorsFile file(path.string());
  const TextMap& metadata = file.metadata();
  require(metadata.count("format") && metadata.at("format") == kFormat,
          "[embeddings] {} is not one of melete's", path.string());
  Embeddings rows{metadata.at("identity"), metadata.at("side"), {}, {}};
  const TensorMap tensors = read_tensors(file);
  const auto vectors = tensors.find("vectors");
  require(
      vectors != tensors.end() && vectors->second.dim() == 2 && vectors->second.scalar_type() == at::kFloat,
      "[embeddings] {} has no vectors [items, dim]", path.string());
  rows.vectors = vectors->second;
  try {
    if (const auto items = metadata.find("items"); items != metadata.end()) {
      for (const Json& line : Json::parse(items->second)) rows.items.push_back(item_of(line));
    } else {
      std::ifstream lines(path.parent_path() / "items.jsonl");
      for (std::string line; std::getline(lines, line);) rows.items.push_back(item_of(Json::parse(line)));
    }
  } catch (const Json::exception& error) {
    fail("[embeddings] the list of items of {} is damaged: {}", path.string(), error.what());
  }
  require(static_cast<int64_t>(rows.items.size()) == rows.vectors.size(0),
          "[embeddings] {} has {} vectors and {} items", path.string(), rows.vectors.size(0),
          rows.items.size());
  return rows;
}

}  // namespace

Embeddings read_embeddings(const std::string& folder) {
  const fs::path whole = fs::path(folder) / kWhole;
  if (!fs::exists(whole)) {
    require(!fs::exists(fs::path(folder) / "parts"),
            "[embeddings] {} is not finished; run the same `melete embed` again, it goes on", folder);
    fail("[embeddings] there are no embeddings in {}; make them with `melete embed`", folder);
  }
  return read_rows(whole);
}

EmbeddingFolder::EmbeddingFolder(std::string folder, std::string identity, std::string side)
    : folder_(std::move(folder)), before_{std::move(identity), std::move(side), {}, {}} {
  fs::create_directories(fs::path(folder_) / "parts");
  remove_stale_temporaries(folder_);
  remove_stale_temporaries((fs::path(folder_) / "parts").string());
  std::vector<at::Tensor> vectors;
  const auto take = [&](Embeddings rows) {
    require(
        rows.identity == before_.identity && rows.side == before_.side,
        "[embeddings] {} holds {} embeddings of another model ({}, this one is {} and makes {}); use a new "
        "folder",
        folder_, rows.side, rows.identity, before_.identity, before_.side);
    vectors.push_back(std::move(rows.vectors));
    for (EmbeddedItem& item : rows.items) before_.items.push_back(std::move(item));
  };
  if (fs::exists(fs::path(folder_) / kWhole)) take(read_rows(fs::path(folder_) / kWhole));
  for (; fs::exists(part_path(parts_)); ++parts_) take(read_rows(part_path(parts_)));
  if (!vectors.empty()) before_.vectors = at::cat(vectors);
}

std::string EmbeddingFolder::part_path(int64_t number) const {
  return (fs::path(folder_) / "parts" / fmt::format("part_{:06}.safetensors", number)).string();
}

void EmbeddingFolder::add_part(const at::Tensor& vectors, const std::vector<EmbeddedItem>& items) {
  TextMap metadata = metadata_of(before_);
  Json listed = Json::array();
  for (const EmbeddedItem& item : items) listed.push_back(json_of(item));
  metadata["items"] = listed.dump();
  write_tensors(part_path(parts_++), {{"vectors", vectors}}, metadata);
}

void EmbeddingFolder::finish(const Embeddings& whole) {
  std::string lines;
  for (const EmbeddedItem& item : whole.items) lines += json_of(item).dump() + "\n";
  // The whole comes last: where it is, everything is.
  const fs::path folder(folder_);
  fs::remove(folder / kWhole);
  write_file_atomically((folder / "items.jsonl").string(), lines);
  write_npy((folder / "embeddings.npy").string(), whole.vectors);
  write_tensors((folder / kWhole).string(), {{"vectors", whole.vectors}}, metadata_of(whole));
  fs::remove_all(folder / "parts");
}

}  // namespace melete::musiclm
