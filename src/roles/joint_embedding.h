// Sound or words into one space, behind one face: what is heard and what describes it lie close together.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace melete {

class JointEmbedding {
 public:
  virtual ~JointEmbedding() = default;

  virtual std::string kind() const = 0;  // "mulan"
  virtual int64_t dim() const = 0;
  virtual int64_t rate_hz() const = 0;              // that embed_audio() expects
  virtual const std::string& identity() const = 0;  // hash of weights and configuration

  // Both without gradient, whatever the caller's mode is, and callable from several threads at once.
  // wave [batch, samples], lengths [batch] int64 or undefined: samples that are sound -> unit vectors [batch, dim]
  virtual at::Tensor embed_audio(const at::Tensor& wave, const at::Tensor& lengths = {}) const = 0;
  virtual at::Tensor embed_text(const std::vector<std::string>& texts) const = 0;
};

}  // namespace melete
