// Tokens of whole recordings in files, so that training does not tokenize twice. A folder holds tokens.json
// (what made them) and shards: safetensors with `<n>.semantic` and `<n>.acoustic` for each of its recordings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "tasks/token_source.h"

namespace melete {

// What the tokens of a folder are, and whose.
struct TokenInfo {
  std::string semantic_identity, codec_identity;  // empty: none of these
  int64_t semantic_tokens = 0, codebook_size = 0, quantizers = 0;
  double tokens_per_second = 0, frames_per_second = 0;

  static TokenInfo of(const Tokenizers& tokenizers);
  nlohmann::ordered_json json() const;
  static TokenInfo from(const nlohmann::ordered_json& json);
};

bool is_token_folder(const std::string& path);
TokenInfo read_token_info(const std::string& folder);

struct TokenizeResult {
  int64_t files = 0, already = 0, failed = 0;
};
struct TokenizeOptions {
  int64_t files_per_shard = 64;
  std::function<void(int64_t done, int64_t of)> progress;
  std::function<void(const std::string& path, const std::string& message)> on_failure;
};
// Goes on where an earlier call left off: whole shards are kept. A folder made by other tokenizers or from
// other recordings is refused.
TokenizeResult tokenize_recordings(const std::vector<ManifestEntry>& entries, const Tokenizers& tokenizers,
                                   const std::string& folder, const TokenizeOptions& options);

struct TokenItem {
  at::Tensor semantic;  // int16 or int32 [tokens] or undefined
  at::Tensor acoustic;  // int16 or int32 [frames, quantizers] or undefined
  std::string path, text;
};

// All items of a folder, in memory: an hour of speech is about 2 MB.
std::vector<TokenItem> read_token_items(const std::string& folder);

// Batches of random segments, or of whole items when segment_seconds is 0: a function of (seed, epoch,
// index).
class TokenBatches : public BatchSource {
 public:
  // Ranks share batches as BatchLoader's do.
  TokenBatches(std::vector<TokenItem> items, const TokenInfo& info, double segment_seconds,
               int64_t batch_size, uint64_t seed, int rank = 0, int rank_count = 1, bool split = false);
  // Conditions on text, too.
  void set_text_encoder(std::shared_ptr<const TextEncoder> encoder) { text_ = std::move(encoder); }

  Batch batch(int64_t number) override;
  int64_t items_per_batch() const override { return share_.all; }
  double weight() const override;
  void start_from(int64_t item) override { first_item_ = item; }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }

 private:
  std::vector<TokenItem> items_;
  TokenInfo info_;
  double segment_seconds_;
  uint64_t seed_;
  // Of every batch of all ranks, which items are this rank's.
  struct Share {
    int64_t all, first, count;
  } share_;
  int rank_count_;
  int64_t first_item_ = 0;
  std::shared_ptr<const TextEncoder> text_;
  std::vector<int64_t> order_;  // of the epoch last asked for
  uint64_t order_epoch_ = 0;
};

struct TokenSplit {
  std::vector<TokenItem> train, valid;
};
// By path, as recordings are split (data/dataset.h).
TokenSplit split_tokens(std::vector<TokenItem> items, double valid_fraction, uint64_t seed);

}  // namespace melete
