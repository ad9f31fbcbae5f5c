// A text encoder that is trained with the model it conditions, for those who have no T5: embeddings of bytes
// or SentencePiece ids through a few layers of the one transformer, seeing both ways. Unlike a TextEncoder it
// is a module, and gradients flow through it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "nn/position_bias.h"
#include "nn/text_embeddings.h"
#include "nn/transformer.h"

namespace melete {

class Schema;

struct SmallTextEncoderConfig {
  std::string tokenizer = "none";  // none: there is no such encoder; bytes, sentencepiece
  std::string sentencepiece;       // its model file; needed to start training, not to go on
  int64_t dim = 256;
  int64_t depth = 2;
  int64_t heads = 4;
  int64_t head_dim = 64;
  int64_t max_tokens = 256;  // longer texts are cut
  double dropout = 0;

  // Not a setting: the model file's bytes, where it was read before (take_pieces). Empty: read the file.
  std::string pieces;

  bool enabled() const { return tokenizer != "none"; }
};
void describe(Schema& schema, SmallTextEncoderConfig& config);

// As the settings say; for SentencePiece the bytes at hand go before the file.
std::shared_ptr<const TextTokenizer> make_text_tokenizer(const SmallTextEncoderConfig& config);

class SmallTextEncoderImpl : public torch::nn::Module {
 public:
  explicit SmallTextEncoderImpl(const SmallTextEncoderConfig& config);

  // [batch, longest text, dim]; what stands beside a text changes nothing.
  TextEmbeddings forward(const std::vector<std::string>& texts, Draws* draws = nullptr);

  const SmallTextEncoderConfig& config() const { return config_; }
  const TextTokenizer& tokenizer() const { return *tokenizer_; }

  torch::nn::Embedding embedding{nullptr};
  BiasNetwork position_bias{nullptr};
  Transformer transformer{nullptr};
  at::Tensor pieces;  // uint8: the SentencePiece model goes along with the weights; undefined for bytes

 private:
  SmallTextEncoderConfig config_;
  std::shared_ptr<const TextTokenizer> tokenizer_;
};
TORCH_MODULE(SmallTextEncoder);

// Out of a checkpoint: the SentencePiece model at `key`, so that its file is not needed. Nothing to do for
// bytes.
void take_pieces(SmallTextEncoderConfig& config, const TensorMap& tensors, const std::string& key,
                 const std::string& where);

}  // namespace melete
