// Sound and words in one space: unit vectors whose product says how well they fit together.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "roles/placed.h"

namespace melete {

// What becomes of a text before it is read.
struct TextFit {
  bool wordless = false;  // nothing in it can be read: an empty text, or punctuation alone
  bool cut = false;       // it is longer than what is read of it
};

class JointEmbedding : public Placed {
 public:
  virtual std::string kind() const = 0;             // "mulan"
  virtual int64_t dim() const = 0;                  // of the space
  virtual int64_t rate_hz() const = 0;              // that it hears best; others are resampled
  virtual int64_t shortest_samples() const = 0;     // at rate_hz: the least that it can hear
  virtual const std::string& identity() const = 0;  // hash of weights, configuration and vocabulary

  // Both give unit vectors [batch, dim] without gradient, whatever the caller's mode is.
  // audio [batch, samples] at audio_rate_hz; lengths [batch] int64 in samples, undefined: all are whole
  virtual at::Tensor embed_audio(const at::Tensor& audio, int64_t audio_rate_hz,
                                 const at::Tensor& lengths = {}) const = 0;
  virtual at::Tensor embed_text(const std::vector<std::string>& texts) const = 0;
  virtual TextFit fit(const std::string& text) const { return {text.empty(), false}; }
};

}  // namespace melete
