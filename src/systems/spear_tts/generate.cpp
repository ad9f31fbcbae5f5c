#include "systems/spear_tts/generate.h"

#include "config/schema.h"
#include "systems/spear_tts/decoder.h"

namespace melete::spear_tts {

GenerateConfig::GenerateConfig() {
  sampling.guidance = 1;
}

void describe(Schema& s, GenerateConfig& c) {
  describe(s, c.sampling);
  s.option("longest", c.longest, "most tokens to write, the end included").at_least(1).unit("tokens");
  s.option("precision", c.precision, "of the weights; bf16 and int8: faster, a little less exact")
      .one_of(weight_precisions());
  s.option("as_upstream", c.as_upstream, "filters and pads as spear-tts-pytorch does");
}

namespace {

// The draws of some rows of a batch, the same as if all were there.
class SelectedRows : public Draws {
 public:
  SelectedRows(Draws& all, int64_t batch) : all_(all), batch_(batch) {}
  void select(const at::Tensor& rows) { rows_ = rows.to(at::kCPU); }

  int64_t integer(std::string_view what, int64_t low, int64_t high) override {
    return all_.integer(what, low, high);
  }
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override {
    return all_.rows(what, population, count);
  }
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
    return selected(all_.uniform(what, whole(shape)));
  }
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override {
    return selected(all_.normal(what, whole(shape)));
  }

 private:
  std::vector<int64_t> whole(at::IntArrayRef shape) const {
    std::vector<int64_t> result = shape.vec();
    result.front() = batch_;
    return result;
  }
  at::Tensor selected(const at::Tensor& values) const {
    return rows_.defined() ? values.index_select(0, rows_) : values;
  }

  Draws& all_;
  int64_t batch_;
  at::Tensor rows_;  // undefined: all
};

}  // namespace

at::Tensor choose(const at::Tensor& logits, const GenerateConfig& config, Draws& draws) {
  const SamplingConfig& sampling = config.sampling;
  if (sampling.temperature == 0) return logits.argmax(-1);
  if (!config.as_upstream || sampling.top_p >= 1) return sample(logits, sampling, draws);
  SamplingConfig filter = sampling, rest;
  filter.temperature = 1;
  rest.temperature = sampling.temperature;
  rest.filter = 0;
  return sample(filtered_logits(logits, filter), rest, draws);
}

at::Tensor padded_after_end(const at::Tensor& tokens, int64_t end, int64_t padding) {
  if (end < 0) return tokens;
  const at::Tensor is_end = tokens.eq(end).to(at::kLong);
  return tokens.masked_fill((is_end.cumsum(1) - is_end).gt(0), padding);
}

Generated generate(TextToSemantic& model, const Source& source, Modality target, const GenerateConfig& config,
                   Draws& draws) {
  const at::NoGradGuard no_grad;
  const int64_t batch = source.ids.size(0);
  const VocabularyImpl& vocabulary = model->vocabulary(target);
  const int64_t end = vocabulary.end_id(), padding = vocabulary.config().padding;
  Decoder decoder(*model, source,
                  {target, config.longest, 0, 1, config.sampling.guidance, weight_storage(config.precision)});
  SelectedRows own_draws(draws, batch);

  at::Tensor alive = at::arange(batch, source.ids.options());  // the row of each that is being written
  at::Tensor ended = at::zeros({batch}, source.ids.options().dtype(at::kBool));
  at::Tensor score = at::zeros({batch}, source.ids.options().dtype(at::kFloat));
  at::Tensor tokens = at::full({batch, config.longest}, padding, source.ids.options());
  at::Tensor ids;
  int64_t length = 0;
  bool all_ended = false;
  while (length < config.longest && !all_ended) {
    const at::Tensor logits = decoder.next(ids);
    ids = choose(logits, config, own_draws);
    const at::Tensor expected =
        at::log_softmax(logits.to(at::kFloat), -1).gather(1, ids.unsqueeze(1)).squeeze(1);
    score.index_add_(0, alive, expected.masked_fill(ended.index_select(0, alive), 0));
    tokens.select(1, length++).index_copy_(0, alive, ids);
    if (end < 0) continue;
    ended.index_copy_(0, alive, ended.index_select(0, alive).logical_or_(ids.eq(end)));
    all_ended = ended.all().item<bool>();
    // Rows that have ended leave when they are half of all: then the copy of the others' cache pays.
    const at::Tensor going = ended.index_select(0, alive).logical_not_().nonzero().squeeze(1);
    if (all_ended || config.as_upstream || 2 * going.size(0) > alive.size(0)) continue;
    decoder.keep_sources(going);
    ids = ids.index_select(0, going);
    alive = alive.index_select(0, going);
    own_draws.select(alive);
  }
  tokens = tokens.narrow(1, 0, length);
  if (all_ended || !config.as_upstream) tokens = padded_after_end(tokens, end, padding);
  return {tokens, score};
}

}  // namespace melete::spear_tts
