#include "systems/spear_tts/beam_search.h"

#include <algorithm>

#include "config/schema.h"
#include "systems/spear_tts/decoder.h"

namespace melete::spear_tts {

void describe(Schema& s, BeamSearchConfig& c) {
  describe(s, c.beam);
  s.option("temperature", c.temperature, "of the log probabilities that are added up").at_least(0);
  s.option("guidance", c.guidance, "strength of the condition; 1: no guidance").at_least(0);
  s.option("longest", c.longest, "most tokens to write, the end included").at_least(1).unit("tokens");
  s.option("precision", c.precision, "of the weights; bf16 and int8: faster, a little less exact")
      .one_of(weight_precisions());
}

Generated beam_search(TextToSemantic& model, const Source& source, Modality target,
                      const BeamSearchConfig& config) {
  const at::NoGradGuard no_grad;
  const VocabularyImpl& vocabulary = model->vocabulary(target);
  const int64_t end = vocabulary.end_id(), padding = vocabulary.config().padding;
  const int64_t items = source.ids.size(0);
  Decoder decoder(
      *model, source,
      {target, config.longest, 0, config.beam.beams, config.guidance, weight_storage(config.precision)});
  Beams beams(items, config.beam, end, source.ids.options());

  at::Tensor searched = at::arange(items, source.ids.options());  // the item of each that is searched for
  at::Tensor tokens = at::full({items, config.longest}, padding, source.ids.options());
  at::Tensor score = at::empty({items}, source.ids.options().dtype(at::kFloat));
  const auto take_best = [&] {
    const at::Tensor best = padded_after_end(beams.best_tokens(), end, padding);
    tokens.narrow(1, 0, beams.length()).index_copy_(0, searched, best);
    score.index_copy_(0, searched, beams.best_score());
  };
  at::Tensor ids;
  while (beams.length() < config.longest && !beams.done()) {
    const at::Tensor logits = decoder.next(ids).to(at::kFloat);
    const Beams::Step step = beams.advance(at::log_softmax(logits / std::max(config.temperature, 1e-10), -1));
    decoder.branch(step.parents);
    ids = step.tokens;
    // Searches that are over leave when they are half of all: then the copy of the others' cache pays.
    const at::Tensor going = beams.going();
    if (config.beam.score_past_end || going.numel() == 0 || 2 * going.size(0) > searched.size(0)) continue;
    take_best();
    beams.keep(going);
    decoder.keep_sources(going);
    ids = ids.view({-1, config.beam.beams}).index_select(0, going).flatten();
    searched = searched.index_select(0, going);
  }
  take_best();
  return {tokens.narrow(1, 0, beams.length()), score};
}

}  // namespace melete::spear_tts
