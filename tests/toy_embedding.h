// A joint embedding whose vectors can be told by hand.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "nn/codebook.h"
#include "roles/joint_embedding.h"

namespace melete::testing {

// Loudness of four stretches, and of words their letters; dies at the batch that it is told. Words are the
// letters a to d, of which it reads 20.
class ToyEmbedding : public JointEmbedding {
 public:
  std::string kind() const override { return "toy"; }
  int64_t dim() const override { return 4; }
  int64_t rate_hz() const override { return 8000; }
  int64_t shortest_samples() const override { return 4; }
  const std::string& identity() const override { return name; }
  at::Tensor embed_audio(const at::Tensor& audio, int64_t, const at::Tensor& lengths) const override {
    if (++calls == dies_at) fail("[toy] killed");
    at::Tensor rows = at::zeros({audio.size(0), 4});
    for (int64_t row = 0; row < audio.size(0); ++row) {
      const int64_t length = lengths.defined() ? lengths[row].item<int64_t>() : audio.size(1);
      for (int64_t part = 0; part < 4; ++part)
        rows[row][part] = 0.01 + audio[row].slice(0, length * part / 4, length * (part + 1) / 4).abs().mean();
    }
    items += audio.size(0);
    return unit_vectors(rows);
  }
  at::Tensor embed_text(const std::vector<std::string>& texts) const override {
    at::Tensor rows = at::zeros({static_cast<int64_t>(texts.size()), 4});
    for (size_t i = 0; i < texts.size(); ++i)
      for (const char letter : texts[i])
        if (letter >= 'a' && letter <= 'd') rows[static_cast<int64_t>(i)][letter - 'a'] += 1;
    return unit_vectors(rows + 0.01);
  }

  TextFit fit(const std::string& text) const override {
    return {text.find_first_of("abcd") == std::string::npos, text.size() > 20};
  }

  std::string name = "toy 1";
  mutable int64_t calls = 0, items = 0;
  int64_t dies_at = 0;
};

}  // namespace melete::testing
