#include "systems/audiolm/audiolm.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/error.h"
#include "nn/frozen.h"

namespace melete {

namespace {

void require_equal(const char* what, int64_t left, const char* left_name, int64_t right,
                   const char* right_name) {
  require(left == right, "[audiolm] {}: the {} has {}, the {} {}; these parts were not trained together",
          what, left_name, left, right_name, right);
}

Condition condition_for(const AudioLm& model, const AudioLmRequest& request, StageImpl& stage,
                        const at::Tensor& own_features, bool always_masked) {
  if (!stage.stage().conditioned()) return {};
  at::Tensor features = own_features.defined() ? own_features : request.text_features;
  if (!features.defined()) {
    require(!request.texts.empty(), "[audiolm] these models are conditioned on text; give one");
    std::vector<std::string> texts = request.texts;
    if (texts.size() == 1) texts.resize(static_cast<size_t>(request.batch), texts.front());
    if (!stage.text_encoder.is_empty()) return stage.condition(texts, {});
    require(model.text_encoder != nullptr,
            "[audiolm] these models need the text encoder that they were trained with");
    features = model.text_encoder->encode(texts).embeddings;
  }
  features = features.to(device_of(stage));
  // audiolm-pytorch's semantic and fine stages know no mask for embeddings that were made before.
  if (request.as_audiolm_pytorch && !always_masked) return {features, {}};
  return masked_condition(features);
}

template <class Is>
bool any_stage(const AudioLm& model, Is is) {
  return is(model.semantic->stage()) || is(model.coarse->stage()) ||
         (!model.fine.is_empty() && is(model.fine->stage()));
}

}  // namespace

bool AudioLm::conditioned() const {
  return any_stage(*this, [](const StageConfig& stage) { return stage.conditioned(); });
}

bool AudioLm::needs_text_encoder() const {
  return any_stage(*this,
                   [](const StageConfig& stage) { return stage.conditioned() && !stage.text.enabled(); });
}

void AudioLm::check() const {
  require_equal("semantic tokens", semantic->config().semantic_tokens, "semantic model",
                coarse->config().semantic_tokens, "coarse model");
  if (tokenizer)
    require_equal("semantic tokens", semantic->config().semantic_tokens, "semantic model",
                  tokenizer->codebook_size(), "tokenizer");
  require_equal("codebook size", coarse->config().codebook_size, "coarse model", codec->codebook_size(),
                "codec");
  if (fine.is_empty()) {
    require(coarse->config().quantizers <= codec->quantizers(),
            "[audiolm] the coarse model makes {} quantizers, the codec has {}", coarse->config().quantizers,
            codec->quantizers());
    return;
  }
  require_equal("codebook size", coarse->config().codebook_size, "coarse model", fine->config().codebook_size,
                "fine model");
  require_equal("coarse quantizers", coarse->config().quantizers, "coarse model",
                fine->config().coarse_quantizers, "fine model");
  require_equal("quantizers", fine->config().coarse_quantizers + fine->config().fine_quantizers, "fine model",
                codec->quantizers(), "codec");
}

AudioLmResult generate(AudioLm& model, const AudioLmRequest& request) {
  const at::NoGradGuard no_grad;
  model.check();
  const at::Device device = device_of(*model.semantic);
  const auto rows = [&](const at::Tensor& x) { return x.size(0) == 1 ? x.expand({request.batch, -1}) : x; };
  at::Tensor prompt_ids, prompt_codes;
  if (request.prompt.defined()) {
    require(model.tokenizer != nullptr || request.prompt_semantic.defined(),
            "[audiolm] a prompt needs the semantic tokenizer");
    const at::Tensor prompt = rows(request.prompt.dim() == 1 ? request.prompt.unsqueeze(0) : request.prompt);
    prompt_ids = request.prompt_semantic.defined()
                     ? request.prompt_semantic
                     : model.tokenizer->tokenize_at(prompt, request.prompt_rate_hz);
    prompt_ids = prompt_ids.to(device);
    prompt_codes = model.codec->encode_at(prompt, request.prompt_rate_hz).to(device);
  } else {
    prompt_ids = at::empty({request.batch, 0}, at::TensorOptions(device).dtype(at::kLong));
  }
  const double token_rate = model.tokenizer ? model.tokenizer->tokens_per_second() : 50;
  // 0.4 s are 20 frames of 0.02 s, whatever the last bits of these numbers say.
  const auto in_seconds = [&](double rate) {
    return static_cast<int64_t>(std::ceil(request.seconds * rate - 1e-6));
  };
  const int64_t semantic_length =
      request.semantic_length > 0 ? request.semantic_length : prompt_ids.size(1) + in_seconds(token_rate);
  const int64_t coarse_frames =
      request.coarse_frames > 0 ? request.coarse_frames : in_seconds(model.codec->frames_per_second());

  std::optional<RowDraws> draws;
  const auto stage_request = [&](const char* stage, const SamplingConfig& sampling,
                                 const Condition& condition) {
    StageRequest result;
    result.sampling = sampling;
    result.condition = condition;
    draws.emplace(request.seed, stage, request.batch);
    result.draws = request.draws ? request.draws : &*draws;
    result.unique_consecutive = request.unique_consecutive && model.unique_consecutive;
    result.may_end = request.may_end;
    result.weights = request.weights;
    result.as_audiolm_pytorch = request.as_audiolm_pytorch;
    if (request.progress)
      result.progress = [&request, stage](int64_t done, int64_t of) { request.progress(stage, done, of); };
    return result;
  };

  AudioLmResult result;
  if (prompt_codes.defined()) result.prompt_samples = prompt_codes.size(1) * model.codec->samples_per_frame();
  result.semantic = generate_semantic(
      model.semantic, prompt_ids, semantic_length,
      stage_request("semantic", request.semantic,
                    condition_for(model, request, *model.semantic, request.semantic_features, false)));

  const int64_t coarse_quantizers = model.coarse->config().quantizers;
  const at::Tensor coarse_prompt =
      prompt_codes.defined() ? prompt_codes.narrow(2, 0, coarse_quantizers) : at::Tensor();
  result.coarse = generate_coarse(
      model.coarse, result.semantic, coarse_prompt, coarse_frames,
      stage_request("coarse", request.coarse,
                    condition_for(model, request, *model.coarse, request.coarse_features, true)));

  result.acoustic = result.coarse;
  if (!model.fine.is_empty()) {
    const int64_t fine_quantizers = model.fine->config().fine_quantizers;
    const at::Tensor fine_prompt =
        prompt_codes.defined() ? prompt_codes.narrow(2, coarse_quantizers, fine_quantizers) : at::Tensor();
    const at::Tensor fine = generate_fine(
        model.fine, result.coarse, fine_prompt,
        stage_request("fine", request.fine,
                      condition_for(model, request, *model.fine, request.fine_features, false)));
    result.acoustic = at::cat({result.coarse, fine}, 2);
  }
  for (int64_t row = 0; row < request.batch; ++row) {
    const at::Tensor codes = result.acoustic[row];
    const at::Tensor whole = codes.index({codes.ne(kPadding).all(-1)});
    result.waves.push_back(
        (whole.size(0) == 0 ? at::zeros({0}) : model.codec->decode(whole.unsqueeze(0))[0]).to(at::kCPU));
  }
  return result;
}

}  // namespace melete
