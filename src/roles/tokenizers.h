// The frozen models that turn recordings and texts into columns of a batch: "semantic", "acoustic",
// "text_features" and "joint".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/base/manifest.h"
#include "data/token_folder.h"
#include "roles/codec.h"
#include "roles/joint_embedding.h"
#include "roles/semantic_tokenizer.h"
#include "roles/text_encoder.h"

namespace melete {

// Those that are not needed are null.
struct Tokenizers {
  std::shared_ptr<const SemanticTokenizer> semantic;
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const TextEncoder> text;
  std::shared_ptr<const JointEmbedding> joint;  // hears the first wave, whatever its rate is

  // Rates that the waves of a batch must have, and what their lengths must be multiples of; in this order:
  // semantic, codec; the joint embedding's own where there is neither.
  std::vector<int64_t> rates_hz() const;
  std::vector<int64_t> multiples() const;
  // What they give, as a folder of tokens says it.
  TokenColumns columns() const;

  // Adds "semantic" int64 [items, tokens], "acoustic" int64 [items, frames, quantizers], both padded with -1,
  // "text_features" [items, length, dim], padded with zero rows, and "joint" [items, dim], unit vectors. An
  // item is tokenized by itself where it is shorter than the batch, so that what stands beside it changes
  // nothing.
  void add_columns(Batch& batch) const;
};

struct TokenizeResult {
  int64_t files = 0, already = 0, failed = 0;
};
struct TokenizeOptions {
  int64_t files_per_shard = 64;
  std::function<void(int64_t done, int64_t of)> progress;
  std::function<void(const std::string& path, const std::string& message)> on_failure;
};
// Recordings into a folder of tokens; goes on where an earlier call left off.
TokenizeResult tokenize_recordings(const std::vector<ManifestEntry>& entries, const Tokenizers& tokenizers,
                                   const std::string& folder, const TokenizeOptions& options);

}  // namespace melete
