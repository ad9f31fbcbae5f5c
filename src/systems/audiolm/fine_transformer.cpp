#include "systems/audiolm/fine_transformer.h"

#include <algorithm>
#include <cmath>

#include "config/schema.h"
#include "core/device.h"

namespace melete {

void describe(Schema& s, FineConfig& c) {
  s.option("codebook_size", c.codebook_size, "size of the codec's codebooks; 0: from the codec").at_least(0);
  s.option("coarse_quantizers", c.coarse_quantizers, "how many of the codec's quantizers are coarse")
      .at_least(1);
  s.option("fine_quantizers", c.fine_quantizers, "how many are fine; 0: all others").at_least(0);
  s.option("predict_coarse", c.predict_coarse, "train on the coarse part, too");
  s.option("positions_from_longest", c.positions_from_longest,
           "audiolm-pytorch's position bias, which changes with the length of the sequence");
  describe(s, c.stage);
}

FineTransformerImpl::FineTransformerImpl(const FineConfig& config)
    : StageImpl(config.stage), config_(config) {
  const TransformerConfig& t = config.stage.transformer;
  const int64_t size = config.codebook_size, coarse = config.coarse_quantizers, fine = config.fine_quantizers;
  coarse_start = register_parameter("coarse_start", at::randn({t.dim}));
  fine_start = register_parameter("fine_start", at::randn({t.dim}));
  coarse_embedding = register_module("coarse_embedding", torch::nn::Embedding(coarse * size, t.dim));
  fine_embedding = register_module("fine_embedding", torch::nn::Embedding(fine * size, t.dim));
  coarse_quantizer_embedding =
      register_module("coarse_quantizer_embedding", torch::nn::Embedding(coarse, t.dim));
  fine_quantizer_embedding = register_module("fine_quantizer_embedding", torch::nn::Embedding(fine, t.dim));
  if (config.stage.position_bias) {
    start_bias = register_parameter("start_bias", at::randn({t.heads, 1, 1}));
    position_bias = register_module("position_bias", BiasNetwork(2, t.dim / 2, t.heads, 2));
  }
  // Small enough that the first losses are those of guessing.
  const double scale = 1 / std::sqrt(static_cast<double>(t.dim));
  if (config.predict_coarse)
    coarse_logits = register_parameter("coarse_logits", at::randn({coarse, size, t.dim}) * scale);
  fine_logits = register_parameter("fine_logits", at::randn({fine, size, t.dim}) * scale);
}

at::Tensor FineTransformerImpl::seen(const at::Tensor& coarse, int64_t fine) const {
  const at::Tensor there = coarse.ne(kPadding).logical_and(coarse.ne(end_id()));
  return at::constant_pad_nd(there, {1, fine + 1}, 1);
}

at::Tensor FineTransformerImpl::embed_fine(const at::Tensor& codes, int64_t first) {
  return embed_codes(codes, fine_embedding, fine_quantizer_embedding, config_.codebook_size, first);
}

at::Tensor FineTransformerImpl::embed(const at::Tensor& coarse, const at::Tensor& fine) {
  const int64_t batch = coarse.size(0);
  const at::Tensor unseen = coarse.eq(kPadding).logical_or(coarse.eq(end_id()));
  return at::cat({repeat_start(coarse_start, batch),
                  embed_codes(coarse.masked_fill(unseen, 0), coarse_embedding, coarse_quantizer_embedding,
                              config_.codebook_size),
                  repeat_start(fine_start, batch), embed_fine(fine)},
                 1);
}

FineTransformerImpl::Positions FineTransformerImpl::positions(int64_t coarse, int64_t fine) {
  Positions result;
  const auto options = at::TensorOptions(at::kLong).device(coarse_start.device());
  const auto part = [&](int64_t count, int64_t quantizers, int64_t first_quantizer) {
    const at::Tensor at = at::arange(count, options);
    return std::pair(at::constant_pad_nd(at.div(quantizers, "floor"), {1, 0}, -1),
                     at::constant_pad_nd(at.remainder(quantizers) + first_quantizer, {1, 0}, 0));
  };
  const auto [coarse_frame, coarse_quantizer] = part(coarse, config_.coarse_quantizers, 0);
  const auto [fine_frame, fine_quantizer] = part(fine, config_.fine_quantizers, config_.coarse_quantizers);
  const at::Tensor frame = at::cat({coarse_frame, fine_frame});
  const auto length = [](int64_t count, int64_t by) { return (count + by - 1) / by; };
  const int64_t frames = std::max<int64_t>(
      {1, length(coarse, config_.coarse_quantizers), length(fine, config_.fine_quantizers)});
  const int64_t quantizers = config_.coarse_quantizers + config_.fine_quantizers, span = 2 * quantizers - 1;
  result.start = frame.eq(-1);
  result.place = frame.clamp_min(0) * span + at::cat({coarse_quantizer, fine_quantizer});
  result.middle = (frames - 1) * span + quantizers - 1;
  if (position_bias.is_empty()) return result;

  const auto values = options.dtype(at::kFloat);
  const int64_t first = config_.positions_from_longest ? 0 : 1 - frames;
  const at::Tensor by_frame =
      at::arange(first, first + 2 * frames - 1, values).unsqueeze(1).expand({-1, span});
  const at::Tensor by_quantizer = at::arange(span, values).unsqueeze(0).expand_as(by_frame);
  result.table = position_bias(at::stack({by_frame, by_quantizer}, -1).flatten(0, 1));
  return result;
}

at::Tensor FineTransformerImpl::bias(const Positions& p, int64_t from, int64_t to) {
  const at::Tensor causal = sent_to(coarse_start.device(), causal_bias({}, from, to));
  if (!p.table.defined()) return causal;
  const auto rows = [&](const at::Tensor& x) { return x.narrow(0, from, to - from).unsqueeze(1); };
  const auto keys = [&](const at::Tensor& x) { return x.narrow(0, 0, to).unsqueeze(0); };
  const at::Tensor learned = at::embedding(p.table, rows(p.place) - keys(p.place) + p.middle)
                                 .permute({0, 2, 1});  // [rows, heads, keys]
  const at::Tensor at_start = rows(p.start).logical_or(keys(p.start));
  return at::where(at_start.unsqueeze(1), start_bias.view({1, -1, 1}), learned) + causal;
}

FineLogits FineTransformerImpl::forward(const at::Tensor& coarse, const at::Tensor& fine,
                                        const StagePass& pass) {
  const int64_t c = coarse.size(1);
  const at::Tensor x = embed(coarse, fine);
  const int64_t n = x.size(1);
  at::Tensor visible = seen(coarse, fine.size(1));
  if (pass.seen.defined()) visible = visible.logical_and(pass.seen);
  const at::Tensor y =
      transformer(x, bias(positions(c, fine.size(1)), 0, n), visible, context(pass), pass.draws);
  FineLogits result;
  if (coarse_logits.defined()) result.coarse = quantizer_logits(y.narrow(1, 0, c), coarse_logits);
  result.fine = quantizer_logits(y.narrow(1, c + 1, n - c - 1), fine_logits);
  return result;
}

}  // namespace melete
