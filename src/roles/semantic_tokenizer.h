// Frozen models that turn sound into semantic tokens, behind one face. AudioLM's transformers see nothing
// else of them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "roles/placed.h"

namespace melete {

class SemanticTokenizer : public Placed {
 public:
  virtual std::string kind() const = 0;               // "hubert", "mfcc", "semitones", ...
  virtual int64_t rate_hz() const = 0;                // that tokenize() expects
  virtual int64_t samples_per_token() const = 0;      // one token stands for this many samples
  virtual int64_t codebook_size() const = 0;          // ids are 0 .. codebook_size - 1
  virtual const std::string& identity() const = 0;    // hash of weights and configuration
  virtual int64_t tokens(int64_t samples) const = 0;  // how many ids tokenize() gives for that many samples
  virtual int64_t shortest_samples() const = 0;       // the least that gives a token

  // audio [batch, samples] at rate_hz -> ids [batch, tokens] int64. Without gradient, whatever the caller's
  // mode is. May be called from several threads at once.
  virtual at::Tensor tokenize(const at::Tensor& audio) const = 0;

  // The same at any rate: resampled, and cut at its end to a multiple of samples_per_token.
  at::Tensor tokenize_at(const at::Tensor& audio, int64_t audio_rate_hz) const;

  double tokens_per_second() const {
    return static_cast<double>(rate_hz()) / static_cast<double>(samples_per_token());
  }
};

// [batch, samples] cut to whole multiples: at its end, or at its beginning so that the end is kept.
at::Tensor cut_to_multiple(const at::Tensor& audio, int64_t multiple, bool keep_end = false);

}  // namespace melete
