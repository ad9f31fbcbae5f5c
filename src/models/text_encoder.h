// Text to vectors that condition a transformer, behind one face.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
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

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  virtual std::string kind() const = 0;  // "t5"
  virtual int64_t dim() const = 0;
  virtual const std::string& identity() const = 0;  // hash of weights, configuration and vocabulary

  // Without gradient, whatever the caller's mode is. May be called from several threads at once.
  virtual TextEmbeddings encode(const std::vector<std::string>& texts) const = 0;
};

}  // namespace melete
