#include "nn/small_text_encoder.h"

#include <algorithm>
#include <cstring>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"

namespace melete {

namespace {

// By signed distance, key - query -> [n, heads, n]
at::Tensor two_sided_bias(BiasNetwork& network, int64_t n) {
  const auto options = at::TensorOptions(at::kFloat).device(network->parameters().front().device());
  const at::Tensor table = network(at::arange(1 - n, n, options).unsqueeze(1));  // [2n - 1, heads]
  // Row q is the window that starts n - 1 - q places after the farthest key before it.
  return table.t().unfold(1, n, 1).flip({1}).permute({1, 0, 2});
}

}  // namespace

std::shared_ptr<const TextTokenizer> make_text_tokenizer(const SmallTextEncoderConfig& config) {
  TextTokenizerConfig text;
  text.tokenizer = config.tokenizer;
  text.sentencepiece = config.sentencepiece;
  text.pieces = config.pieces;
  return make_text_tokenizer(text);
}

void describe(Schema& s, SmallTextEncoderConfig& c) {
  s.option("tokenizer", c.tokenizer, "text to ids; none: no text encoder of its own")
      .one_of({"none", "bytes", "sentencepiece"});
  s.option("sentencepiece", c.sentencepiece,
           "SentencePiece model file (padding 0, end 1); kept in checkpoints")
      .kept("model.text_encoder.pieces", c.pieces);
  s.option("dim", c.dim, "width").at_least(2);
  s.option("depth", c.depth, "layers").at_least(1);
  s.option("heads", c.heads, "query heads").at_least(1);
  s.option("head_dim", c.head_dim, "width of a head").at_least(1);
  s.option("max_tokens", c.max_tokens, "longer texts are cut").at_least(1);
  s.option("dropout", c.dropout, "share of values dropped in training").at_least(0).at_most(0.99);
}

SmallTextEncoderImpl::SmallTextEncoderImpl(const SmallTextEncoderConfig& config)
    : config_(config), tokenizer_(make_text_tokenizer(config)) {
  TransformerConfig inner;
  inner.dim = config.dim;
  inner.depth = config.depth;
  inner.heads = config.heads;
  inner.head_dim = config.head_dim;
  inner.attention_dropout = inner.feed_forward_dropout = config.dropout;
  inner.gradient_shrink = 1;
  inner.causal = false;
  embedding = register_module("embedding", torch::nn::Embedding(tokenizer_->vocabulary(), config.dim));
  position_bias =
      register_module("position_bias", BiasNetwork(1, std::max<int64_t>(1, config.dim / 2), config.heads, 2));
  transformer = register_module("transformer", Transformer(inner));
  if (const auto* model = dynamic_cast<const SentencePieceTokenizer*>(tokenizer_.get())) {
    const std::string& bytes = model->model_bytes();
    pieces = register_buffer("pieces", at::empty({static_cast<int64_t>(bytes.size())}, at::kByte));
    std::memcpy(pieces.data_ptr(), bytes.data(), bytes.size());
  }
}

TextEmbeddings SmallTextEncoderImpl::forward(const std::vector<std::string>& texts, Draws* draws) {
  const TextIds text = text_ids(*tokenizer_, texts, config_.max_tokens);
  const auto device = embedding->weight.device();
  const at::Tensor ids = sent_to(device, text.ids), mask = sent_to(device, text.mask);
  const at::Tensor y =
      transformer(embedding(ids), two_sided_bias(position_bias, ids.size(1)), mask, Context(), draws);
  return {y * mask.unsqueeze(-1), mask};
}

void take_pieces(SmallTextEncoderConfig& config, const TensorMap& tensors, const std::string& key,
                 const std::string& where) {
  if (config.tokenizer != "sentencepiece") return;
  const auto found = tensors.find(key);
  require(found != tensors.end() && found->second.scalar_type() == at::kByte, "[{}] has no `{}`", where, key);
  const at::Tensor bytes = found->second.to(at::kCPU).contiguous();
  config.pieces.assign(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()),
                       static_cast<size_t>(bytes.numel()));
}

}  // namespace melete
