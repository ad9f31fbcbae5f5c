#include "nn/text_embeddings.h"

#include <algorithm>

#include "core/base/error.h"

namespace melete {

TextIds text_ids(const TextTokenizer& tokenizer, const std::vector<std::string>& texts, int64_t max_tokens) {
  require(!texts.empty(), "[text] expected at least one text, got none");
  std::vector<std::vector<int64_t>> rows;
  size_t longest = 0;
  for (const std::string& text : texts) {
    rows.push_back(tokenizer.encode(text, max_tokens));
    longest = std::max(longest, rows.back().size());
  }
  const auto batch = static_cast<int64_t>(texts.size()), tokens = static_cast<int64_t>(longest);
  const at::Tensor ids = at::full({batch, tokens}, kTextPad, at::kLong);
  const at::Tensor mask = at::zeros({batch, tokens}, at::kBool);
  for (int64_t i = 0; i < batch; ++i) {
    const auto& row = rows[static_cast<size_t>(i)];
    std::copy(row.begin(), row.end(), ids.data_ptr<int64_t>() + i * tokens);
    std::fill_n(mask.data_ptr<bool>() + i * tokens, row.size(), true);
  }
  return {ids, mask};
}

}  // namespace melete
