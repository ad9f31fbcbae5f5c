// Tokens at hand as batches, without a folder.
#pragma once

#include "data/loader.h"
#include "data/token_folder.h"

namespace melete {

inline LoaderConfig no_workers() {
  LoaderConfig config;
  config.workers = 0;
  return config;
}

class TokenBatches : public BatchLoader {
 public:
  TokenBatches(std::vector<Item> items, const TokenColumns& columns, double segment_seconds,
               int64_t batch_size, uint64_t seed, int rank = 0, int rank_count = 1, bool split = false)
      : BatchLoader(std::make_shared<TokenDataset>(std::move(items), columns, segment_seconds), no_workers(),
                    seed, {batch_size, rank, rank_count, split}) {}
};

// acoustic may be undefined
inline Item token_item(const std::string& path, const at::Tensor& semantic, const at::Tensor& acoustic,
                       const std::string& text = "") {
  Item item;
  item.words = {{"path", path}, {"text", text}};
  item.add("semantic", semantic);
  if (acoustic.defined()) item.add("acoustic", acoustic);
  return item;
}

inline TokenColumns token_columns(int64_t semantic_tokens, int64_t codebook_size, int64_t quantizers,
                                  double per_second, const std::string& identity = "test") {
  return {{{"semantic", identity, semantic_tokens, 0, per_second, 0},
           {"acoustic", identity, codebook_size, quantizers, per_second, 0}}};
}

}  // namespace melete
