#include "systems/spear_tts/deletion.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "nn/draws.h"
#include "systems/spear_tts/text_to_semantic.h"

namespace melete::spear_tts {

void describe(Schema& s, DeletionConfig& c) {
  s.option("share", c.share, "share of a row's tokens that are deleted").at_least(0).at_most(1);
  s.option("reconstruct", c.reconstruct, "learn the whole row; false: what was deleted, in order");
  s.option("mask_token", c.mask_token,
           "token that stands where one was deleted; needs reconstruct; -1: none, the rest closes up")
      .at_least(-1);
  s.option("as_upstream", c.as_upstream, "choose tokens as spear-tts-pytorch does, wrong with padding");
}

at::Tensor random_subset(const at::Tensor& eligible, double share, Draws& draws, bool as_upstream,
                         double at_least) {
  const at::Tensor wanted = (eligible.sum(1, true) * share).clamp_min(at_least);  // float32, not rounded
  const at::Tensor noise = sent_to(eligible.device(), draws.uniform("subset", eligible.sizes()));
  const at::Tensor others = eligible.logical_not();
  at::Tensor rank;
  if (as_upstream)  // not ranks, but the positions in the order of their noise
    rank = noise.masked_fill(others, -1).argsort(1, false).to(at::kFloat) - others.sum(1, true);
  else
    rank = noise.masked_fill(others, 2).argsort(1, false).argsort(1, false).to(
        at::kFloat);  // 2: after all of [0, 1)
  return rank.lt(wanted).logical_and_(eligible);
}

namespace {

// The chosen ids of each row, closed up to the left and padded to the longest.
at::Tensor close_up(const at::Tensor& ids, const at::Tensor& chosen, int64_t padding) {
  const at::Tensor counts = chosen.sum(1, true);
  const int64_t longest = ids.numel() == 0 ? 0 : counts.max().item<int64_t>();
  const at::Tensor order = at::argsort(chosen.logical_not().to(at::kByte), true, 1, false);  // stable
  const at::Tensor packed = ids.gather(1, order.narrow(1, 0, longest));
  const at::Tensor place = at::arange(longest, ids.options()).unsqueeze(0);
  return packed.masked_fill(place.ge(counts), padding);
}

}  // namespace

Damaged damage(const at::Tensor& ids, const VocabularyImpl& vocabulary, const DeletionConfig& config,
               Draws& draws) {
  const bool masks = config.mask_token >= 0;
  require(!masks || config.reconstruct,
          "[spear-tts] a mask token marks where the whole row is to be told; try reconstruct = true");
  require(config.mask_token < vocabulary.classes(), "[spear-tts] expected a mask token below {}, got {}",
          vocabulary.classes(), config.mask_token);
  const at::Tensor eligible = config.as_upstream && !masks ? at::ones_like(ids, at::kBool)
                                                           : vocabulary.is_padding(ids).logical_not_();
  const int64_t padding = vocabulary.config().padding;
  Damaged result;
  result.deleted = random_subset(eligible, config.share, draws, config.as_upstream);
  const at::Tensor left = eligible.logical_and(result.deleted.logical_not());
  result.source = masks ? ids.masked_fill(result.deleted, config.mask_token) : close_up(ids, left, padding);
  result.target = config.reconstruct ? ids : close_up(ids, result.deleted, padding);
  return result;
}

}  // namespace melete::spear_tts
