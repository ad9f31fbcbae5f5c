#include "systems/audiolm/stages.h"

#include <limits>
#include <vector>

#include "core/base/error.h"
#include "generate/logit_head.h"
#include "systems/audiolm/stage_decoder.h"
#include "systems/audiolm/stage_losses.h"

namespace melete {

namespace {

void report(const StageRequest& request, int64_t done, int64_t of) {
  if (request.progress) request.progress(done, of);
}

// Everything from the first `end` of a row on becomes padding.
at::Tensor cut_at_end(const at::Tensor& ids, int64_t end) {
  return ids.masked_fill(ids.eq(end).cumsum(-1).gt(0), kPadding);
}

// Rows moved to the right edge, so that all end together; -1 before them.
at::Tensor align_right(const at::Tensor& ids, const at::Tensor& lengths) {
  at::Tensor result = at::full_like(ids, kPadding);
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const int64_t n = lengths[row].item<int64_t>();
    result[row].narrow(0, ids.size(1) - n, n).copy_(ids[row].narrow(0, 0, n));
  }
  return result;
}

at::Tensor align_left(const at::Tensor& ids, const at::Tensor& lengths, int64_t width) {
  at::Tensor result = at::full({ids.size(0), ids.size(1)}, kPadding, ids.options());
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const int64_t skip = width - lengths[row].item<int64_t>();
    result[row].narrow(0, 0, ids.size(1) - skip).copy_(ids[row].narrow(0, skip, ids.size(1) - skip));
  }
  return result;
}

// Samples stand after the padding of shorter prompts, and their logits are read as if it were not there.
at::Tensor semantic_as_upstream(SemanticTransformer& model, const at::Tensor& prompt, int64_t max_length,
                                const StageRequest& request) {
  const int64_t batch = prompt.size(0), width = prompt.size(1);
  const at::Tensor table = model->bias_table(std::max(max_length, width) + 1);
  StageDecoder decoder(*model, request, batch, std::max(max_length, width) + 1,
                       [&](int64_t from, int64_t to) { return causal_bias(table, from, to); });
  at::Tensor ids = prompt;
  at::Tensor read_at = prompt.ne(request.ignored.value_or(kPadding)).sum(-1);
  at::Tensor x = at::cat({repeat_start(model->start, batch), model->embed(ids)}, 1), logits;
  while (ids.size(1) < max_length) {
    const at::Tensor y = decoder.feed_all(x);
    const at::Tensor flat = decoder.guide(model->logits(y.flatten(1).view({y.size(0), y.size(1), -1})));
    logits = logits.defined() ? at::cat({logits, flat}, 1) : flat;
    const at::Tensor last =
        logits.gather(1, read_at.view({-1, 1, 1}).expand({-1, 1, logits.size(2)})).squeeze(1);
    const at::Tensor next = sample(last, request.sampling, *request.draws).unsqueeze(1);
    ids = at::cat({ids, next}, 1);
    if (ids.eq(model->end_id()).any(-1).all().item<bool>()) break;
    read_at = read_at + 1;
    x = model->embed(next);
  }
  return cut_at_end(ids, model->end_id());
}

struct QuantizedLoop {
  int64_t quantizers, first_frame, frames;  // frames in all, those of the prompt included
  int64_t end = -1;                         // the id that ends a row; -1: none
  bool last_is_end = false;                 // the last class is taken only where an end may be
};

// Frame by frame, quantizer by quantizer; `x` holds the embeddings before the first new token, and `codes`
// [batch, n] what is there already.
template <class Embed>
at::Tensor sample_codes(StageDecoder& decoder, at::Tensor x, at::Tensor codes, const at::Tensor& weights,
                        const QuantizedLoop& loop, const StageRequest& request, Embed embed) {
  const std::vector<LogitHead> heads = logit_heads(weights, request.weights);
  std::vector<at::Tensor> parts = {codes};
  at::Tensor ended = at::zeros({codes.size(0)}, codes.options().dtype(at::kBool));
  const int64_t new_frames = loop.frames - loop.first_frame;
  for (int64_t frame = 0; frame < new_frames; ++frame) {
    // An end is possible between two frames, after the first one.
    const bool may_end = request.may_end && frame + (loop.end < 0 ? loop.first_frame : 0) > 0 &&
                         frame % request.frames_between_ends == 0;
    for (int64_t q = 0; q < loop.quantizers; ++q) {
      at::Tensor logits = decoder.guide(heads[static_cast<size_t>(q)](decoder.feed(x)));
      if (loop.last_is_end && !(q == 0 && may_end))
        logits.select(1, -1).fill_(-std::numeric_limits<float>::infinity());
      const at::Tensor next = sample(logits, request.sampling, *request.draws).unsqueeze(1);
      if (loop.end >= 0 && q == 0) ended = ended.logical_or(next.squeeze(1).eq(loop.end));
      parts.push_back(next);
      x = embed(next, q);
    }
    report(request, (frame + 1) * loop.quantizers, new_frames * loop.quantizers);
    if (loop.end >= 0 && ended.all().item<bool>()) break;
  }
  at::Tensor all = at::cat(parts, 1);
  if (loop.end >= 0) all = cut_at_end(all, loop.end);
  return all.view({all.size(0), -1, loop.quantizers});
}

at::Tensor flat_codes(const at::Tensor& prompt, int64_t batch, const at::Tensor& like) {
  return prompt.defined() ? prompt.flatten(1) : at::empty({batch, 0}, like.options().dtype(at::kLong));
}

}  // namespace

at::Tensor generate_semantic(SemanticTransformer& model, const at::Tensor& given, int64_t max_length,
                             const StageRequest& request) {
  const at::NoGradGuard no_grad;
  const at::Tensor prompt = tidy_tokens(given, -1, request.unique_consecutive, request.as_audiolm_pytorch);
  if (request.as_audiolm_pytorch) return semantic_as_upstream(model, prompt, max_length, request);

  // Positions count by distance only, so prompts of unequal length stand at the right edge, each behind its
  // own start token, and what is before it is not looked at.
  const int64_t batch = prompt.size(0), width = prompt.size(1);
  const at::Tensor lengths = prompt.ne(kPadding).sum(-1);
  const int64_t shortest = width == 0 ? 0 : lengths.min().item<int64_t>();
  const int64_t steps = max_length - shortest, capacity = width + 1 + std::max<int64_t>(steps, 0);
  if (steps <= 0) return prompt.narrow(1, 0, std::min(width, max_length));
  at::Tensor ids = align_right(prompt, lengths), seen;
  at::Tensor x = at::cat({repeat_start(model->start, batch), model->embed(ids)}, 1);
  if (shortest < width) {
    const at::Tensor first = (width - lengths).unsqueeze(1);  // where a row's start token stands
    seen = at::arange(capacity, ids.options()).unsqueeze(0).ge(first);
    x.scatter_(1, first.unsqueeze(2).expand({batch, 1, x.size(2)}),
               repeat_start(model->start, batch).contiguous());
  }
  const at::Tensor table = model->bias_table(capacity);
  StageDecoder decoder(
      *model, request, batch, capacity,
      [&](int64_t from, int64_t to) { return causal_bias(table, from, to); }, seen);
  const LogitHead head(model->logits->weight, model->logits->bias, request.weights);
  std::vector<at::Tensor> parts = {ids};
  at::Tensor ended = at::zeros({batch}, ids.options().dtype(at::kBool));
  for (int64_t step = 0; step < steps; ++step) {
    at::Tensor logits = decoder.guide(head(decoder.feed(x)));
    if (!request.may_end) logits.select(1, model->end_id()).fill_(-std::numeric_limits<float>::infinity());
    const at::Tensor next = sample(logits, request.sampling, *request.draws);
    parts.push_back(next.unsqueeze(1));
    ended = ended.logical_or(next.eq(model->end_id()));
    report(request, step + 1, steps);
    if (ended.all().item<bool>()) break;
    x = model->embed(parts.back());
  }
  const at::Tensor all = align_left(at::cat(parts, 1), lengths, width);
  return cut_at_end(all.narrow(1, 0, std::min(all.size(1), max_length)), model->end_id());
}

at::Tensor generate_coarse(CoarseTransformer& model, const at::Tensor& given, const at::Tensor& prompt,
                           int64_t new_frames, const StageRequest& request) {
  const at::NoGradGuard no_grad;
  const at::Tensor semantic = tidy_tokens(given, -1, request.unique_consecutive, request.as_audiolm_pytorch);
  const int64_t batch = semantic.size(0), s = semantic.size(1), quantizers = model->config().quantizers;
  const at::Tensor codes = flat_codes(prompt, batch, semantic);
  require(codes.size(0) == batch && codes.size(1) % quantizers == 0,
          "[coarse] a prompt of {} x {} codes does not fit {} rows and {} quantizers", codes.size(0),
          codes.size(1), batch, quantizers);
  QuantizedLoop loop{quantizers, codes.size(1) / quantizers, codes.size(1) / quantizers + new_frames,
                     model->end_id(), true};
  const int64_t capacity = s + 2 + loop.frames * quantizers;
  at::Tensor seen;
  if (!request.as_audiolm_pytorch && semantic.eq(kPadding).any().item<bool>())
    seen = at::constant_pad_nd(semantic.ne(kPadding), {1, capacity - s - 1}, 1);
  const at::Tensor table = model->bias_table(capacity);
  StageDecoder decoder(
      *model, request, batch, capacity,
      [&](int64_t from, int64_t to) { return model->bias(table, s, from, to); }, seen);
  return sample_codes(decoder, model->embed(semantic, codes), codes, model->coarse_logits, loop, request,
                      [&](const at::Tensor& next, int64_t q) { return model->embed_coarse(next, q); });
}

at::Tensor generate_fine(FineTransformer& model, const at::Tensor& coarse, const at::Tensor& prompt,
                         const StageRequest& request) {
  const at::NoGradGuard no_grad;
  const FineConfig& sizes = model->config();
  const at::Tensor flat = coarse.flatten(1);
  const int64_t batch = flat.size(0), c = flat.size(1), quantizers = sizes.fine_quantizers;
  const int64_t frames = c / sizes.coarse_quantizers;
  at::Tensor codes = flat_codes(prompt, batch, flat);
  if (codes.size(1) > frames * quantizers) codes = codes.narrow(1, 0, frames * quantizers);
  QuantizedLoop loop{quantizers, codes.size(1) / quantizers, frames, -1, request.as_audiolm_pytorch};
  const int64_t fine = frames * quantizers, capacity = c + 2 + fine;
  const auto positions = model->positions(c, fine);
  StageDecoder decoder(
      *model, request, batch, capacity,
      [&](int64_t from, int64_t to) { return model->bias(positions, from, to); }, model->seen(flat, fine));
  const at::Tensor result =
      sample_codes(decoder, model->embed(flat, codes), codes, model->fine_logits, loop, request,
                   [&](const at::Tensor& next, int64_t q) { return model->embed_fine(next, q); });
  if (request.as_audiolm_pytorch) return result;
  const at::Tensor padding = flat.view({batch, frames, -1}).eq(kPadding).any(-1, true);
  return result.masked_fill(padding, kPadding);
}

}  // namespace melete
