#include "systems/spear_tts/decoder.h"

#include <limits>

#include "core/base/error.h"

namespace melete::spear_tts {

Decoder::Decoder(TextToSemanticImpl& model, const Source& source, const DecoderOptions& options)
    : model_(model),
      vocabulary_(model.vocabulary(options.target)),
      guidance_(options.guidance),
      guided_(options.guidance != 1),
      rows_(source.ids.size(0) * options.rows_per_source),
      rows_per_source_(options.rows_per_source) {
  require(
      !guided_ || model.config().condition_drop > 0,
      "[spear-tts] guidance {} needs a model that was trained with condition_drop above 0; try guidance 1",
      guidance_);
  require(options.longest >= 1, "[spear-tts] expected to write at least one token, got {}", options.longest);
  const at::NoGradGuard no_grad;
  cache_ = model.decoder->make_cache(model.encode(source), options.longest + options.ahead, rows_per_source_,
                                     guided_);
  // Operators are quicker for many rows, but know only the weights as they are.
  most_lines_ = options.storage == WeightStorage::float32 ? kFewRows : std::numeric_limits<int64_t>::max();
  if (options.by_operators || !DecoderStep::fits(*model.decoder) || cache_.rows() > most_lines_) return;
  step_.emplace(*model.decoder, options.storage);
  head_.emplace(vocabulary_.embedding->weight.detach(), at::Tensor(), options.storage);
  if (model.has_early_exit() && options.ahead > 0) early_head_.emplace(*model.early_exit, options.storage);
}

namespace {

// A head goes back to the weights as they are when it gets many rows. x [..., dim] -> [..., classes]
at::Tensor few_at_a_time(const LogitHead& head, const at::Tensor& x) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.reshape({-1, x.size(-1)}).split(kFewRows)) parts.push_back(head(part));
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = -1;
  return at::cat(parts).view(sizes);
}

}  // namespace

at::Tensor Decoder::embed(const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = ids.defined() ? vocabulary_.embed(ids.unsqueeze(1)) : vocabulary_.starts(rows_);
  return guided_ ? at::cat({x, x}) : x;
}

at::Tensor Decoder::run(const at::Tensor& streams, const std::vector<int64_t>& first, LayerRange layers) {
  std::vector<int64_t> positions = first;
  if (guided_) positions.insert(positions.end(), first.begin(), first.end());
  if (step_ && streams.size(0) * streams.size(1) <= most_lines_)
    return step_->forward(streams, positions, layers, cache_);
  return model_.decoder->run(streams, positions, layers, cache_);
}

at::Tensor Decoder::guide(const at::Tensor& all) const {
  if (!guided_) return all;
  const at::Tensor with = all.narrow(0, 0, rows_), without = all.narrow(0, rows_, rows_);
  return without + (with - without) * guidance_;
}

at::Tensor Decoder::logits(const at::Tensor& streams) {
  const at::NoGradGuard no_grad;
  const at::Tensor normed = model_.decoder->norm(streams);
  if (head_ && most_lines_ > kFewRows) return guide(few_at_a_time(*head_, normed));
  if (head_) return guide((*head_)(normed));
  return guide(vocabulary_.logits(normed));
}

at::Tensor Decoder::early_logits(const at::Tensor& streams) {
  const at::NoGradGuard no_grad;
  if (early_head_ && streams.size(1) == 1) return guide((*early_head_)(streams.squeeze(1)).unsqueeze(1));
  return guide(model_.early_exit(streams));
}

at::Tensor Decoder::next(const at::Tensor& ids) {
  const std::vector<int64_t> first(static_cast<size_t>(rows_), position_);
  ++position_;
  return logits(run(embed(ids), first, all_layers())).select(1, 0);
}

void Decoder::take(const at::Tensor& rows) {
  cache_.take_rows(guided_ ? at::cat({rows, rows + rows_}) : rows, position_);
}

void Decoder::branch(const at::Tensor& parents) {
  const at::Tensor same = at::arange(rows_, parents.options());
  if (parents.equal(same)) return;
  if (!step_) return take(parents);
  cache_.branch(guided_ ? at::cat({parents, parents + rows_}) : parents, position_);
}

void Decoder::keep_sources(const at::Tensor& sources) {
  const at::Tensor each = at::arange(rows_per_source_, sources.options());
  const at::Tensor rows = (sources.unsqueeze(1) * rows_per_source_ + each).flatten();
  take(rows);
  cache_.take_contexts(sources);
  rows_ = rows.size(0);
}

}  // namespace melete::spear_tts
