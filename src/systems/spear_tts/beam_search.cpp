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
}

Generated beam_search(TextToSemantic& model, const Source& source, Modality target,
                      const BeamSearchConfig& config) {
  const at::NoGradGuard no_grad;
  const VocabularyImpl& vocabulary = model->vocabulary(target);
  const int64_t end = vocabulary.end_id();
  Decoder decoder(*model, source, {target, config.longest, 0, config.beam.beams, config.guidance});
  Beams beams(source.ids.size(0), config.beam, end, source.ids.options());
  at::Tensor ids;
  while (beams.length() < config.longest && !beams.done()) {
    const at::Tensor logits = decoder.next(ids).to(at::kFloat);
    const Beams::Step step = beams.advance(at::log_softmax(logits / std::max(config.temperature, 1e-10), -1));
    decoder.branch(step.parents);
    ids = step.tokens;
  }
  return {padded_after_end(beams.best_tokens(), end, vocabulary.config().padding), beams.best_score()};
}

}  // namespace melete::spear_tts
