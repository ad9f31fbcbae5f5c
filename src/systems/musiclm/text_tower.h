// MuLaN's text tower: tokens behind a token of its own, which becomes the text's embedding.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "systems/musiclm/tower_transformer.h"

namespace melete {
class TextTokenizer;
}

namespace melete::musiclm {

struct TextTowerConfig {
  TowerTransformerConfig transformer;
  int64_t vocabulary = 49408;  // ids of the tokenizer; 49408 are CLIP's
  int64_t window = 256;        // tokens; longer texts are cut
};
void describe(Schema& schema, TextTowerConfig& config);

struct TextInput {
  at::Tensor ids;   // [batch, tokens] int64
  at::Tensor mask;  // bool [batch, tokens], true where there is text; undefined: everywhere

  int64_t batch() const { return ids.size(0); }
  TextInput rows(int64_t begin, int64_t end) const;
};

struct TokenizedTexts {
  TextInput input;
  int64_t cut = 0;  // texts that were longer than the window
};
// As long as the longest of them, within the window. A text without words is an Error that names its item
// (names: one a text; none: its place).
TokenizedTexts tokenize(const TextTokenizer& tokenizer, const std::vector<std::string>& texts, int64_t window,
                        const std::vector<std::string>& names = {});

struct TextTowerImpl : torch::nn::Module {
  explicit TextTowerImpl(const TextTowerConfig& config);
  // Layers and their hidden positions begin with the tower's own token.
  TowerOutput forward(const TextInput& input, Draws* draws = nullptr);

  const TextTowerConfig& config() const { return config_; }

  torch::nn::Embedding tokens{nullptr}, positions{nullptr};
  at::Tensor summary;  // [dim]: the token before the first, without a position
  TowerTransformer transformer{nullptr};
  Norm norm{nullptr};

 private:
  TextTowerConfig config_;
};
TORCH_MODULE(TextTower);

}  // namespace melete::musiclm
