// Tokens of whole recordings in files, so that training does not make them twice. A folder holds tokens.json
// (its columns: name, whose they are, how many values, how many a second) and shards: safetensors with
// `<n>.<column>` for each of its items, and their paths and texts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "io/tensors.h"

namespace melete {

struct TokenColumn {
  std::string name;       // "semantic", "acoustic", "text_features"
  std::string identity;   // of the model that made them; empty: of none
  int64_t values = 0;     // integers are 0 .. values - 1; 0: these are floats
  int64_t width = 0;      // numbers at each place: quantizers, or an embedding's size; 0: a single one
  double per_second = 0;  // places a second of sound; 0: not along time
  int64_t rate_hz = 0;    // of the sound that they were made from; 0: unknown

  bool operator==(const TokenColumn&) const = default;
};

struct TokenColumns {
  std::vector<TokenColumn> list;

  const TokenColumn* find(const std::string& name) const;  // nullptr where there is none
  const TokenColumn& require_column(const std::string& name, const std::string& folder) const;
  nlohmann::ordered_json json() const;
  static TokenColumns from(const nlohmann::ordered_json& json);  // version 1 of the file, too
};

bool is_token_folder(const std::string& path);
TokenColumns read_token_columns(const std::string& folder);

// Writes a folder shard by shard and goes on where an earlier one left off: whole shards are kept. A folder
// with other columns or for another list of items is refused.
class TokenFolderWriter {
 public:
  // items: what identifies each of them, in order
  TokenFolderWriter(std::string folder, const TokenColumns& columns, const std::vector<std::string>& items,
                    int64_t items_per_shard);

  int64_t shards() const;
  int64_t first_item(int64_t shard) const { return shard * items_per_shard_; }
  int64_t end_item(int64_t shard) const;  // one past the shard's last
  bool has(int64_t shard) const;
  // Items with these columns; integers are stored as small as they fit.
  void write(int64_t shard, const std::vector<Item>& items) const;

 private:
  std::string folder_;
  TokenColumns columns_;
  int64_t count_, items_per_shard_;
};

// All items of a folder, in memory: an hour of speech is about 2 MB.
std::vector<Item> read_token_items(const std::string& folder);

// By path, as recordings are split (data/recordings.h).
struct TokenSplit {
  std::vector<Item> train, valid;
};
TokenSplit split_tokens(std::vector<Item> items, double valid_fraction, uint64_t seed);

// Random segments at the same time in all columns that run along it, or whole items when segment_seconds is
// 0.
class TokenDataset : public Dataset {
 public:
  TokenDataset(std::vector<Item> items, TokenColumns columns, double segment_seconds);

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  Item draw(uint64_t seed, uint64_t epoch, int64_t index) override;
  double length(int64_t index) const override;

 private:
  double seconds(const Item& item) const;  // 0 where no column runs along time

  std::vector<Item> items_;
  TokenColumns columns_;
  double segment_seconds_;
};

}  // namespace melete
