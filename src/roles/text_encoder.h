// Text to vectors that condition a transformer, behind one face.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/text_embeddings.h"
#include "roles/placed.h"

namespace melete {

class TextEncoder : public Placed {
 public:
  virtual std::string kind() const = 0;  // "t5"
  virtual int64_t dim() const = 0;
  virtual const std::string& identity() const = 0;  // hash of weights, configuration and vocabulary

  // Without gradient, whatever the caller's mode is. May be called from several threads at once.
  virtual TextEmbeddings encode(const std::vector<std::string>& texts) const = 0;
};

}  // namespace melete
