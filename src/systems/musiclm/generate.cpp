#include "systems/musiclm/generate.h"

#include <algorithm>

#include "core/base/error.h"
#include "nn/codebook.h"
#include "nn/frozen.h"

namespace melete::musiclm {

namespace {

void check_stage(const EmbedQuantizerConfig& condition, const StageConfig& stage, const std::string& name) {
  const auto found = std::find(condition.stages.begin(), condition.stages.end(), name);
  if (found == condition.stages.end() || !stage.conditioned()) return;
  const int64_t width = condition.stage_dims[static_cast<size_t>(found - condition.stages.begin())];
  require(width == stage.text_dim,
          "[musiclm] the {} stage is conditioned on vectors of {} values, its table has {}; these parts were "
          "not trained together",
          name, stage.text_dim, width);
}

at::Tensor codes_of(EmbedQuantizer condition, const at::Tensor& goal) {
  return condition->codes(goal.to(device_of(*condition)));
}

// The condition of one stage for every piece: [samples, quantizers, width]
at::Tensor features(const MusicLm& model, const MusicRequest& request, const at::Tensor& goal,
                    const std::string& stage) {
  EmbedQuantizer condition = model.condition_of(stage);
  const auto& stages = condition->config().stages;
  const at::Tensor one =
      condition->condition(codes_of(condition, goal), request.one_table_for_all ? stages.front() : stage);
  return one.expand({request.samples, one.size(1), one.size(2)});
}

}  // namespace

void MusicLm::check() const {
  require(embedding != nullptr, "[musiclm] there is no joint embedding; give the MuLaN run");
  const auto check_one = [this](const StageConfig& stage, const std::string& name) {
    const EmbedQuantizerConfig config = condition_of(name)->config();
    require(embedding->dim() == config.dim,
            "[musiclm] the joint embedding has {} values, the condition of the {} stage was trained with {}",
            embedding->dim(), name, config.dim);
    check_stage(config, stage, name);
  };
  check_one(audiolm.semantic->stage(), "semantic");
  check_one(audiolm.coarse->stage(), "coarse");
  if (!audiolm.fine.is_empty()) check_one(audiolm.fine->stage(), "fine");
}

EmbedQuantizer MusicLm::condition_of(const std::string& stage) const {
  const auto found = conditions.find(stage);
  const EmbedQuantizer& result = found == conditions.end() ? condition : found->second;
  require(!result.is_empty(), "[musiclm] there is no condition for the {} stage", stage);
  return result;
}

at::Tensor target(const MusicLm& model, const MusicRequest& request) {
  require(!request.text.empty() || request.like.defined(),
          "[musiclm] there is nothing to go by; give a text, or a recording that it shall be like");
  at::Tensor words, sound;
  if (!request.text.empty()) words = model.embedding->embed_text({request.text});
  if (request.like.defined())
    sound = model.embedding->embed_audio(request.like.reshape({1, -1}), request.like_rate_hz).to(at::kCPU);
  if (!words.defined()) return sound;
  if (!sound.defined()) return words;
  return unit_vectors(words * (1 - request.like_share) + sound * request.like_share);
}

at::Tensor scores(const JointEmbedding& embedding, const std::vector<at::Tensor>& waves, int64_t rate_hz,
                  const at::Tensor& target) {
  const int64_t shortest =
      (embedding.shortest_samples() * rate_hz + embedding.rate_hz() - 1) / embedding.rate_hz();
  std::vector<int64_t> lengths, heard;
  int64_t longest = 0;
  for (size_t i = 0; i < waves.size(); ++i) {
    if (waves[i].size(0) < shortest) continue;
    heard.push_back(static_cast<int64_t>(i));
    lengths.push_back(waves[i].size(0));
    longest = std::max(longest, lengths.back());
  }
  at::Tensor result = at::full({static_cast<int64_t>(waves.size())}, -1.0, at::kFloat);
  if (heard.empty()) return result;
  at::Tensor batch = at::zeros({static_cast<int64_t>(heard.size()), longest});
  for (size_t i = 0; i < heard.size(); ++i)
    batch[static_cast<int64_t>(i)].narrow(0, 0, lengths[i]).copy_(waves[static_cast<size_t>(heard[i])]);
  const at::Tensor vectors = embedding.embed_audio(batch, rate_hz, at::tensor(lengths, at::kLong));
  result.index_copy_(0, at::tensor(heard, at::kLong), at::mv(vectors, target.flatten().to(vectors.device())));
  return result;
}

MusicResult generate(MusicLm& model, const MusicRequest& request) {
  const at::NoGradGuard no_grad;
  require(request.samples >= 1, "[musiclm] expected at least one piece, got {}", request.samples);
  model.check();
  const at::Tensor goal = target(model, request);
  MusicResult result;
  result.codes = codes_of(model.condition_of("semantic"), goal);
  AudioLmRequest inner = request.audiolm;
  inner.batch = request.samples;
  inner.semantic_features = features(model, request, goal, "semantic");
  inner.coarse_features = features(model, request, goal, "coarse");
  if (!model.audiolm.fine.is_empty()) inner.fine_features = features(model, request, goal, "fine");
  result.audiolm = melete::generate(model.audiolm, inner);
  // What was given says nothing of what was made.
  std::vector<at::Tensor> fresh;
  for (const at::Tensor& wave : result.audiolm.waves)
    fresh.push_back(wave.slice(0, std::min(result.audiolm.prompt_samples, wave.size(0))));
  result.scores = scores(*model.embedding, fresh, model.audiolm.codec->rate_hz(), goal);
  result.best = result.scores.argmax().item<int64_t>();
  return result;
}

}  // namespace melete::musiclm
