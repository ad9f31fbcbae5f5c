// Texts as ids, and as what an encoder makes of them.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "data/text_tokenizer.h"

namespace melete {

struct TextIds {
  at::Tensor ids;   // [batch, tokens] int64, padded at the end
  at::Tensor mask;  // [batch, tokens] bool, true where there is text
};
// The longest text decides the length; each ends with the end token and has at most max_tokens.
TextIds text_ids(const TextTokenizer& tokenizer, const std::vector<std::string>& texts,
                 int64_t max_tokens = 256);

struct TextEmbeddings {
  at::Tensor embeddings;  // [batch, tokens, dim], zero where there is padding
  at::Tensor mask;        // [batch, tokens] bool, true where there is text
};

}  // namespace melete
