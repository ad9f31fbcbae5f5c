#include "data/token_folder.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/recordings.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr int kVersion = 2;

fs::path info_path(const std::string& folder) {
  return fs::path(folder) / "tokens.json";
}

fs::path shard_path(const std::string& folder, int64_t number) {
  return fs::path(folder) / fmt::format("shard_{:05}.safetensors", number);
}

nlohmann::ordered_json read_description(const fs::path& path) {
  std::ifstream file(path);
  require(file.good(), "[tokens] cannot read {}", path.string());
  try {
    return nlohmann::ordered_json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    fail("[tokens] {} is damaged: {}", path.string(), error.what());
  }
}

// As small as the values allow.
at::Tensor packed(const at::Tensor& values, int64_t count) {
  if (count == 0) return values.to(at::kFloat).contiguous();
  return values.to(count <= 32768 ? at::kShort : at::kInt).contiguous();
}

at::Tensor unpacked(const at::Tensor& values) {
  return values.is_floating_point() ? values : values.to(at::kLong);
}

int64_t at_rate(double seconds, double rate) {
  return static_cast<int64_t>(std::llround(seconds * rate));
}

// Version 1 knew two columns by name.
TokenColumns columns_of_version_1(const nlohmann::ordered_json& json) {
  TokenColumns columns;
  if (const std::string whose = json.at("semantic_identity"); !whose.empty())
    columns.list.push_back(
        {"semantic", whose, json.at("semantic_tokens"), 0, json.at("tokens_per_second"), 0});
  if (const std::string whose = json.at("codec_identity"); !whose.empty())
    columns.list.push_back({"acoustic", whose, json.at("codebook_size"), json.at("quantizers"),
                            json.at("frames_per_second"), 0});
  return columns;
}

}  // namespace

const TokenColumn* TokenColumns::find(const std::string& name) const {
  for (const TokenColumn& column : list)
    if (column.name == name) return &column;
  return nullptr;
}

const TokenColumn& TokenColumns::require_column(const std::string& name, const std::string& folder) const {
  const TokenColumn* found = find(name);
  if (found == nullptr) {
    std::string names;
    for (const TokenColumn& column : list) names += (names.empty() ? "" : ", ") + column.name;
    fail("[data] {} holds no {} tokens; it has: {}", folder, name, names);
  }
  return *found;
}

nlohmann::ordered_json TokenColumns::json() const {
  nlohmann::ordered_json json = {{"format", "melete tokens"}, {"version", kVersion}};
  json["columns"] = nlohmann::ordered_json::array();
  for (const TokenColumn& column : list)
    json["columns"].push_back({{"name", column.name},
                               {"identity", column.identity},
                               {"values", column.values},
                               {"width", column.width},
                               {"per_second", column.per_second},
                               {"rate_hz", column.rate_hz}});
  return json;
}

TokenColumns TokenColumns::from(const nlohmann::ordered_json& json) {
  require(json.value("format", "") == "melete tokens", "[tokens] tokens.json is not one of melete's");
  const int version = json.value("version", 0);
  if (version == 1) return columns_of_version_1(json);
  require(version == kVersion, "[tokens] expected version 1 to {} of tokens.json, got {}", kVersion, version);
  TokenColumns columns;
  for (const auto& column : json.at("columns"))
    columns.list.push_back({column.at("name"), column.at("identity"), column.at("values"), column.at("width"),
                            column.at("per_second"), column.at("rate_hz")});
  return columns;
}

bool is_token_folder(const std::string& path) {
  return fs::exists(info_path(path));
}

TokenColumns read_token_columns(const std::string& folder) {
  return TokenColumns::from(read_description(info_path(folder)));
}

TokenFolderWriter::TokenFolderWriter(std::string folder, const TokenColumns& columns,
                                     const std::vector<std::string>& items, int64_t items_per_shard)
    : folder_(std::move(folder)),
      columns_(columns),
      count_(static_cast<int64_t>(items.size())),
      items_per_shard_(items_per_shard) {
  std::string list;
  for (const std::string& item : items) list += item + "\n";
  auto about = columns.json();
  about["recordings"] = fmt::format("{:016x}", random_key(0, list));
  about["files_per_shard"] = items_per_shard;
  fs::create_directories(folder_);
  if (!is_token_folder(folder_)) {
    AtomicFile file(info_path(folder_).string());
    file.write(about.dump(2) + "\n");
    file.commit();
    return;
  }
  const auto old = read_description(info_path(folder_));
  const auto expect_same = [&](const std::string& what, const std::string& before, const std::string& now) {
    require(before == now, "[tokens] {} was begun with {} {}, now it is {}; use a new folder", folder_, what,
            before, now);
  };
  for (const char* key : {"recordings", "files_per_shard"})
    expect_same(fmt::format("other {}:", key), old.contains(key) ? old[key].dump() : "none",
                about[key].dump());
  const TokenColumns before = TokenColumns::from(old);
  for (const TokenColumn& column : columns.list) {
    const TokenColumn* same = before.find(column.name);
    expect_same(column.name + " tokens of", same ? same->identity : "nobody", column.identity);
  }
  require(before.list.size() == columns.list.size(),
          "[tokens] {} has {} columns, now there would be {}; use a new folder", folder_, before.list.size(),
          columns.list.size());
}

int64_t TokenFolderWriter::shards() const {
  return (count_ + items_per_shard_ - 1) / items_per_shard_;
}

int64_t TokenFolderWriter::end_item(int64_t shard) const {
  return std::min(count_, (shard + 1) * items_per_shard_);
}

bool TokenFolderWriter::has(int64_t shard) const {
  return fs::exists(shard_path(folder_, shard));
}

void TokenFolderWriter::write(int64_t shard, const std::vector<Item>& items) const {
  TensorMap tensors;
  auto listed = nlohmann::ordered_json::array();
  for (const Item& item : items) {
    for (const TokenColumn& column : columns_.list) {
      const Item::Column* found = item.find(column.name);
      require(found != nullptr, "[tokens] an item has no {} tokens", column.name);
      tensors[fmt::format("{}.{}", listed.size(), column.name)] = packed(found->values, column.values);
    }
    listed.push_back(item.words);
  }
  write_tensors(shard_path(folder_, shard).string(), tensors, {{"items", listed.dump()}});
}

std::vector<Item> read_token_items(const std::string& folder) {
  const TokenColumns columns = read_token_columns(folder);
  std::vector<Item> items;
  for (int64_t shard = 0; fs::exists(shard_path(folder, shard)); ++shard) {
    const SafetensorsFile file(shard_path(folder, shard).string());
    const TensorMap tensors = read_tensors(file);
    const auto listed = nlohmann::ordered_json::parse(file.metadata().at("items"));
    for (size_t i = 0; i < listed.size(); ++i) {
      Item item;
      item.words = listed[i].get<std::map<std::string, std::string>>();
      for (const TokenColumn& column : columns.list) {
        const auto found = tensors.find(fmt::format("{}.{}", i, column.name));
        require(found != tensors.end(), "[tokens] {} lacks `{}` of item {}",
                shard_path(folder, shard).string(), column.name, i);
        item.add(column.name, found->second.clone());
      }
      items.push_back(std::move(item));
    }
  }
  require(!items.empty(), "[tokens] {} holds no tokens yet; run `melete data tokenize` to its end", folder);
  return items;
}

TokenSplit split_tokens(std::vector<Item> items, double valid_fraction, uint64_t seed) {
  std::vector<ManifestEntry> entries(items.size());
  for (size_t i = 0; i < items.size(); ++i) entries[i].path = items[i].words.at("path");
  std::set<std::string> held_out;
  for (const ManifestEntry& entry : split(entries, valid_fraction, seed).valid) held_out.insert(entry.path);
  TokenSplit result;
  for (Item& item : items)
    (held_out.count(item.words.at("path")) ? result.valid : result.train).push_back(std::move(item));
  return result;
}

TokenDataset::TokenDataset(std::vector<Item> items, TokenColumns columns, double segment_seconds)
    : items_(std::move(items)), columns_(std::move(columns)), segment_seconds_(segment_seconds) {
  require(!items_.empty(), "[tokens] no items to train on");
}

double TokenDataset::seconds(const Item& item) const {
  // The last column that runs along time decides: codes of a codec, where there are any.
  for (auto column = columns_.list.rbegin(); column != columns_.list.rend(); ++column)
    if (const Item::Column* found = item.find(column->name); found && column->per_second > 0)
      return static_cast<double>(found->values.size(0)) / column->per_second;
  return 0;
}

double TokenDataset::length(int64_t index) const {
  const Item& item = items_.at(static_cast<size_t>(index));
  const double along_time = seconds(item);
  return along_time > 0 || item.columns.empty() ? along_time
                                                : static_cast<double>(item.columns.front().values.size(0));
}

Item TokenDataset::draw(uint64_t seed, uint64_t epoch, int64_t index) {
  const Item& item = items_.at(static_cast<size_t>(index));
  const double whole = seconds(item);
  double start = 0, length = whole;
  if (segment_seconds_ > 0 && whole > segment_seconds_) {
    length = segment_seconds_;
    start =
        Rng(random_key(seed, "segment", {epoch, static_cast<uint64_t>(index)})).uniform(0, whole - length);
  }
  Item result;
  result.words = item.words;
  for (const TokenColumn& column : columns_.list) {
    const Item::Column* found = item.find(column.name);
    if (found == nullptr) continue;
    const at::Tensor& values = found->values;
    // A whole item is taken whole, whatever its rates round to.
    if (length == whole || column.per_second == 0) {
      result.add(column.name, unpacked(values));
      continue;
    }
    const int64_t from = std::min(at_rate(start, column.per_second), values.size(0));
    const int64_t count = std::min(at_rate(length, column.per_second), values.size(0) - from);
    result.add(column.name, unpacked(values.narrow(0, from, count)));
  }
  return result;
}

}  // namespace melete
