#include "systems/spear_tts/speculative.h"

#include <algorithm>

#include "config/schema.h"
#include "core/base/error.h"
#include "generate/speculation.h"
#include "systems/spear_tts/decoder.h"

namespace melete::spear_tts {

void describe(Schema& s, SpeculationConfig& c) {
  s.option("drafts", c.drafts, "tokens that are drafted at a time").at_least(1).unit("tokens");
  s.option("lenience", c.lenience, "below 1: accepts more drafts than is exact").at_least(0);
}

namespace {

// One row of a batch as it grows.
struct Row {
  std::vector<int64_t> tokens;
  bool ended = false;
  double score = 0;
};

class Speculation {
 public:
  Speculation(TextToSemantic& model, const Source& source, const GenerateConfig& config,
              const SpeculationConfig& speculation, Draws& draws)
      : config_(config),
        speculation_(speculation),
        draws_(draws),
        decoder_(*model, source,
                 {Modality::speech, config.longest, speculation.drafts + 1, 1, config.sampling.guidance,
                  weight_storage(config.precision)}),
        end_(model->speech->end_id()),
        rows_(static_cast<size_t>(source.ids.size(0))),
        lengths_(rows_.size(), 0) {}

  bool done() const {
    return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.ended; });
  }
  void round();
  Generated result(int64_t padding, const at::TensorOptions& options) const;

  SpeculationReport report;

 private:
  bool greedy() const { return config_.sampling.temperature == 0; }
  at::Tensor distribution(const at::Tensor& logits) const {
    return at::softmax(filtered_logits(logits.to(at::kFloat), config_.sampling), -1);
  }
  void take(const at::Tensor& drafts, const DraftVerdict& verdict, const at::Tensor& log_probabilities);

  GenerateConfig config_;
  SpeculationConfig speculation_;
  Draws& draws_;
  Decoder decoder_;
  int64_t end_;
  std::vector<Row> rows_;
  std::vector<int64_t> lengths_;  // positions of each row that stand in the cache
  at::Tensor last_;               // int64 [rows], the token after those; undefined: the start
};

void Speculation::round() {
  const int64_t n = speculation_.drafts;
  std::vector<at::Tensor> streams, drafts, quick;
  std::vector<int64_t> position = lengths_;
  at::Tensor ids = last_;
  // The last draft is read, too: what the whole decoder expects after it comes for nothing.
  for (int64_t i = 0; i <= n; ++i) {
    streams.push_back(decoder_.run(decoder_.embed(ids), position, decoder_.early_layers()));
    for (int64_t& each : position) ++each;
    if (i == n) break;
    const at::Tensor logits = decoder_.early_logits(streams.back()).select(1, 0);
    if (greedy()) {
      ids = logits.argmax(-1);
    } else {
      ids = sample(logits, config_.sampling, draws_);
      quick.push_back(distribution(logits));
    }
    drafts.push_back(ids);
  }
  const at::Tensor logits =
      decoder_.logits(decoder_.run(at::cat(streams, 1), lengths_, decoder_.late_layers()));
  const at::Tensor drafted = at::stack(drafts, 1);
  const DraftVerdict verdict = greedy() ? judge_greedy(logits, drafted)
                                        : judge_samples(distribution(logits), at::stack(quick, 1), drafted,
                                                        draws_, speculation_.lenience);
  ++report.rounds;
  take(drafted, verdict, at::log_softmax(logits.to(at::kFloat), -1));
}

void Speculation::take(const at::Tensor& drafts, const DraftVerdict& verdict,
                       const at::Tensor& log_probabilities) {
  const at::Tensor accepted = verdict.accepted.to(at::kCPU), proposed = drafts.to(at::kCPU);
  const at::Tensor next = verdict.next.to(at::kCPU), expected = log_probabilities.to(at::kCPU);
  for (size_t row = 0; row < rows_.size(); ++row) {
    Row& own = rows_[row];
    if (own.ended) continue;  // stays where it is
    const auto number = static_cast<int64_t>(row);
    const int64_t stand = accepted[number].item<int64_t>();
    report.drafted += speculation_.drafts;
    report.accepted += stand;
    for (int64_t i = 0; i <= stand && !own.ended; ++i) {
      const int64_t token = (i < stand ? proposed[number][i] : next[number]).item<int64_t>();
      own.tokens.push_back(token);
      own.score += expected[number][i][token].item<double>();
      own.ended = token == end_ || static_cast<int64_t>(own.tokens.size()) == config_.longest;
    }
    if (!own.ended) lengths_[row] += stand + 1;
  }
  last_ = verdict.next;
}

Generated Speculation::result(int64_t padding, const at::TensorOptions& options) const {
  size_t longest = 0;
  for (const Row& row : rows_) longest = std::max(longest, row.tokens.size());
  const auto count = static_cast<int64_t>(rows_.size());
  at::Tensor tokens = at::full({count, static_cast<int64_t>(longest)}, padding, at::kLong);
  at::Tensor score = at::empty({count}, at::kFloat);
  for (int64_t row = 0; row < count; ++row) {
    const Row& own = rows_[static_cast<size_t>(row)];
    std::copy(own.tokens.begin(), own.tokens.end(), tokens.data_ptr<int64_t>() + row * tokens.size(1));
    score[row] = own.score;
  }
  return {tokens.to(options.device()), score.to(options.device())};
}

}  // namespace

Generated generate_speculatively(TextToSemantic& model, const Source& source, const GenerateConfig& config,
                                 const SpeculationConfig& speculation, Draws& draws,
                                 SpeculationReport* report) {
  const at::NoGradGuard no_grad;
  require(model->has_early_exit(),
          "[spear-tts] speculative decoding needs a model with an early exit; try early_exit_layer above 0");
  Speculation work(model, source, config, speculation, draws);
  while (!work.done()) work.round();
  if (report != nullptr) *report = work.report;
  return work.result(model->speech->config().padding, source.ids.options());
}

}  // namespace melete::spear_tts
