#include "systems/musiclm/embedding_folder.h"

#include <algorithm>
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
constexpr const char* kItems = "items.jsonl";
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

// A file of rows, without their items.
Embeddings rows_of(const SafetensorsFile& file, const fs::path& path) {
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
  return rows;
}

template <class Read>
auto reading_items(const std::string& where, Read read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    fail("[embeddings] the list of items of {} is damaged: {}", where, error.what());
  }
}

void require_as_many(const std::string& where, const at::Tensor& vectors, size_t items) {
  require(static_cast<int64_t>(items) == vectors.size(0), "[embeddings] {} has {} vectors and {} items",
          where, vectors.size(0), items);
}

// A part, whose items are in its metadata.
Embeddings read_part(const std::string& path) {
  const SafetensorsFile file(path);
  Embeddings rows = rows_of(file, path);
  const auto items = file.metadata().find("items");
  require(items != file.metadata().end(), "[embeddings] {} has no list of items", path);
  reading_items(path, [&] {
    for (const Json& line : Json::parse(items->second)) rows.items.push_back(item_of(line));
  });
  require_as_many(path, rows.vectors, rows.items.size());
  return rows;
}

}  // namespace

OpenedEmbeddings::OpenedEmbeddings(const std::string& folder) : folder_(folder) {
  const fs::path whole = fs::path(folder) / kWhole;
  if (!fs::exists(whole)) {
    require(!fs::exists(fs::path(folder) / "parts"),
            "[embeddings] {} is not finished; run the same `melete embed` again, it goes on", folder);
    fail("[embeddings] there are no embeddings in {}; make them with `melete embed`", folder);
  }
  Embeddings rows = rows_of(SafetensorsFile(whole.string()), whole);
  identity_ = std::move(rows.identity);
  side_ = std::move(rows.side);
  vectors_ = std::move(rows.vectors);
  const fs::path list = fs::path(folder) / kItems;
  std::ifstream file(list, std::ios::binary);
  require(file.good(), "[embeddings] {} is missing; embed anew", list.string());
  lines_.resize(fs::file_size(list));
  file.read(lines_.data(), static_cast<std::streamsize>(lines_.size()));
  // Lines are found, not read: a hundred thousand take a few milliseconds.
  for (size_t at = 0; at < lines_.size(); at = std::min(lines_.find('\n', at), lines_.size() - 1) + 1)
    begin_.push_back(at);
  require_as_many(folder, vectors_, begin_.size());
}

EmbeddedItem OpenedEmbeddings::item(int64_t row) const {
  const size_t begin = begin_.at(static_cast<size_t>(row)), end = lines_.find('\n', begin);
  return reading_items(folder_, [&] { return item_of(Json::parse(lines_.substr(begin, end - begin))); });
}

Embeddings read_embeddings(const std::string& folder) {
  const OpenedEmbeddings opened(folder);
  Embeddings all{opened.identity(), opened.side(), opened.vectors(), {}};
  for (int64_t row = 0; row < opened.size(); ++row) all.items.push_back(opened.item(row));
  return all;
}

EmbeddingFolder::EmbeddingFolder(std::string folder, std::string identity, std::string side)
    : folder_(std::move(folder)), before_{std::move(identity), std::move(side), {}, {}} {
  fs::create_directories(fs::path(folder_) / "parts");
  remove_stale_temporaries(folder_);
  remove_stale_temporaries((fs::path(folder_) / "parts").string());
  std::vector<at::Tensor> vectors;
  const auto take = [&](Embeddings rows) {
    require(rows.identity == before_.identity && rows.side == before_.side,
            "[embeddings] {} holds embeddings of {} by the model {}, these are of {} by {}; use a new folder",
            folder_, rows.side, rows.identity, before_.side, before_.identity);
    vectors.push_back(std::move(rows.vectors));
    for (EmbeddedItem& item : rows.items) before_.items.push_back(std::move(item));
  };
  if (fs::exists(fs::path(folder_) / kWhole)) take(read_embeddings(folder_));
  for (; fs::exists(part_path(parts_)); ++parts_) take(read_part(part_path(parts_)));
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
  write_file_atomically((folder / kItems).string(), lines);
  write_npy((folder / "embeddings.npy").string(), whole.vectors);
  write_tensors((folder / kWhole).string(), {{"vectors", whole.vectors}}, metadata_of(whole));
  fs::remove_all(folder / "parts");
}

}  // namespace melete::musiclm
