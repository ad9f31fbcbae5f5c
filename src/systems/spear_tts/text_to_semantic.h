// SPEAR-TTS's one model (Kharitonov et al. 2023): an encoder and a decoder between tokens of speech and
// tokens of text, in any direction. Each side has its own embedding, which also gives its logits, and its own
// start; the decoder may have a second, earlier exit to semantic tokens that drafts what the whole confirms.
#pragma once

#include <torch/nn/modules/embedding.h>

#include <string>
#include <string_view>

#include "systems/spear_tts/transformer.h"

namespace melete {
class Schema;
}

namespace melete::spear_tts {

enum class Modality { speech, text };
std::string_view name_of(Modality modality);

struct Direction {
  Modality source, target;
  bool operator==(const Direction&) const = default;
};
constexpr Direction kSpeechToSpeech{Modality::speech, Modality::speech};
constexpr Direction kSpeechToText{Modality::speech, Modality::text};
constexpr Direction kTextToSpeech{Modality::text, Modality::speech};

struct VocabularyConfig {
  int64_t tokens = 256;
  int64_t padding = -1;  // besides all negative ids; a legal id is one that can never be a token
  bool end = true;       // one token more, after the last: sequences end with it
};
void describe(Schema& schema, VocabularyConfig& config);

struct TextToSemanticConfig {
  VocabularyConfig speech{500}, text{256};
  int64_t dim = 512;
  int64_t encoder_layers = 6;
  int64_t decoder_layers = 6;
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t decoder_key_heads = 0;  // of the decoder's self-attention; 0: as many as heads
  double feed_forward_multiplier = 4;
  double attention_dropout = 0;
  double feed_forward_dropout = 0;
  double condition_drop = 0;         // share of rows that training decodes without their source, for guidance
  int64_t early_exit_layer = 0;      // of the decoder, counted from 1; 0: no early exit
  bool early_exit_detached = false;  // the early exit's loss moves nothing but its own head
};
void describe(Schema& schema, TextToSemanticConfig& config);

// One side's tokens. Ids are int64 [batch, n].
struct VocabularyImpl : torch::nn::Module {
  VocabularyImpl(const VocabularyConfig& config, int64_t dim);

  int64_t classes() const { return config_.tokens + (config_.end ? 1 : 0); }
  int64_t end_id() const { return config_.end ? config_.tokens : -1; }  // -1: there is none
  const VocabularyConfig& config() const { return config_; }

  at::Tensor is_padding(const at::Tensor& ids) const;  // bool [batch, n]
  // The end where the padding begins, [batch, n + 1]; the ids themselves in a vocabulary without an end.
  at::Tensor with_end(const at::Tensor& ids) const;
  at::Tensor embed(const at::Tensor& ids);      // [batch, n, dim]; of padding: something
  at::Tensor starts(int64_t rows) const;        // [rows, 1, dim]
  at::Tensor logits(const at::Tensor& values);  // [..., dim] -> [..., classes]

  torch::nn::Embedding embedding{nullptr};
  at::Tensor start;  // [dim]

 private:
  VocabularyConfig config_;
};
TORCH_MODULE(Vocabulary);

// From the stream after an early layer to logits of semantic tokens.
struct EarlyExitImpl : torch::nn::Module {
  EarlyExitImpl(int64_t dim, int64_t classes);
  at::Tensor forward(const at::Tensor& stream);  // [..., dim] -> [..., classes]

  FeedForward feed_forward{nullptr};
  RmsNorm norm{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(EarlyExit);

// What the model is asked to read.
struct Source {
  at::Tensor ids;  // int64 [batch, n], without an end
  Modality modality = Modality::text;
  at::Tensor seen;  // bool, over the ids with their end; undefined: all that is not padding
};

struct TextToSemanticImpl : torch::nn::Module {
  explicit TextToSemanticImpl(const TextToSemanticConfig& config);

  Context encode(const Source& source, Draws* draws = nullptr);
  // ids [batch, n] after the start, which is position 0; seen: bool [batch, n + 1], undefined: the start and
  // all that is not padding. -> [batch, n + 1, dim]: what follows the start and each of the ids
  TransformerOutput decode(const at::Tensor& ids, Modality target, const Context& context,
                           const at::Tensor& seen = {}, Draws* draws = nullptr);

  VocabularyImpl& vocabulary(Modality modality) { return modality == Modality::speech ? *speech : *text; }
  bool has_early_exit() const { return config_.early_exit_layer > 0; }
  const TextToSemanticConfig& config() const { return config_; }

  Vocabulary speech{nullptr}, text{nullptr};
  Transformer encoder{nullptr}, decoder{nullptr};
  EarlyExit early_exit{nullptr};  // empty without one

 private:
  TextToSemanticConfig config_;
};
TORCH_MODULE(TextToSemantic);

}  // namespace melete::spear_tts
