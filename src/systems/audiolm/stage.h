// What AudioLM's three stages have in common: a transformer over token embeddings, and the text (or joint
// audio-text embedding) that it may be conditioned on.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "data/batch.h"
#include "nn/position_bias.h"
#include "nn/small_text_encoder.h"
#include "nn/transformer.h"

namespace melete {

struct StageConfig {
  TransformerConfig transformer;
  int64_t text_dim = 768;       // width of the embeddings that condition it; 768 is T5-base
  SmallTextEncoderConfig text;  // its own text encoder, trained with it, instead of a frozen one
  double condition_drop = 0.5;  // share of training items that see no condition, for guidance
  bool position_bias = true;
  // audiolm-pytorch has the projection of text embeddings even in models without a condition; its files need
  // it.
  bool unused_text_projection = false;

  bool conditioned() const { return transformer.condition != "none"; }
};
void describe(Schema& schema, StageConfig& config);

struct Condition {
  at::Tensor embeddings;  // [batch, length, text_dim] or undefined
  at::Tensor mask;        // bool [batch, length], true: there; undefined: all, and never dropped
};

// A mask that is false where an embedding is all zeros, which is how text encoders here pad.
Condition masked_condition(const at::Tensor& embeddings);

// One pass of a stage over whole sequences.
struct StagePass {
  Condition condition;
  double condition_drop = 0;  // 1: without condition
  at::Tensor seen;            // bool [batch, positions] or undefined: the forgetful mask and padding
  Draws* draws = nullptr;     // condition drop and dropout; none: neither
};

class StageImpl : public torch::nn::Module {
 public:
  explicit StageImpl(const StageConfig& config);

  Context context(const StagePass& pass);
  // What conditions it: texts through its own encoder, where it has one, else features that a frozen encoder
  // made; nothing where neither is given.
  Condition condition(const std::vector<std::string>& texts, const at::Tensor& features,
                      Draws* draws = nullptr);
  const StageConfig& stage() const { return stage_; }

  Transformer transformer{nullptr};
  torch::nn::Linear text_projection{nullptr};  // empty when the embeddings have the transformer's width
  SmallTextEncoder text_encoder{nullptr};      // empty when embeddings come from elsewhere

 private:
  StageConfig stage_;
};

// Embeddings of codes that go frame by frame, quantizer by quantizer, the first one being of quantizer
// `first`; a second table by quantizer is added. The first table has `rows` rows a quantizer. Padding is read
// as code 0. codes [batch, n] -> [batch, n, dim]
at::Tensor embed_codes(const at::Tensor& codes, const torch::nn::Embedding& table,
                       const torch::nn::Embedding& by_quantizer, int64_t rows, int64_t first = 0);

// Logits with one weight matrix a quantizer: x [batch, n, dim] whose position i belongs to quantizer
// i % quantizers, weights [quantizers, classes, dim] -> [batch, n, classes]
at::Tensor quantizer_logits(const at::Tensor& x, const at::Tensor& weights);

// Embeddings of tokens that may be padding, whose rows are zero. ids [batch, n] -> [batch, n, dim]
at::Tensor embed_padded(const at::Tensor& ids, const torch::nn::Embedding& table);

at::Tensor repeat_start(const at::Tensor& start, int64_t batch);  // [dim] -> [batch, 1, dim]

}  // namespace melete
