// AudioLM from end to end: tokens of every stage, and the wave.
#include <cmath>

#include "core/base/error.h"
#include "golden.h"
#include "io/resample_audio.h"
#include "pretrained/hubert_names.h"
#include "pretrained/kmeans_tokenizer.h"
#include "systems/audiolm/audiolm.h"
#include "systems/audiolm/foreign_names.h"
#include "systems/soundstream/codec.h"

namespace melete::golden::cases_audiolm {

namespace {

// Noise that is nothing: the recorded runs were greedy within the likeliest tenth.
class NoNoise : public SeededDraws {
 public:
  NoNoise() : SeededDraws(0) {}
  at::Tensor uniform(std::string_view, at::IntArrayRef shape) override {
    return at::full(shape, std::exp(-1.0));
  }
};

template <class Model, class Config>
Model stage(const Case& c, const char* name, Config config) {
  const TensorMap weights = below(c.weights, std::string(name) + ".");
  Model model(config(c.config.at(name), text_dim(weights)));
  audiolm_pytorch::load_stage(*model, weights);
  model->eval();
  return model;
}

std::shared_ptr<const SemanticTokenizer> tokenizer(const Case& c) {
  if (c.config.at("hubert").is_null()) return nullptr;
  const TensorMap weights = below(c.weights, "hubert.");
  const at::Tensor centres = c.weights.at("kmeans.cluster_centers");
  const HubertConfig config = foreign_hubert::from_config_json(c.config.at("hubert"));
  return std::make_shared<KmeansTokenizer>(
      std::make_unique<HubertFeatures>(foreign_hubert::load(config, weights, c.name),
                                       c.config.at("hubert_output_layer").get<int64_t>()),
      Centroids{centres, {}, {}});
}

void check_audiolm(const Case& c, Checker& check) {
  const at::NoGradGuard no_grad;
  AudioLm model;
  model.semantic = stage<SemanticTransformer>(c, "semantic", audiolm_pytorch::semantic_config);
  model.coarse = stage<CoarseTransformer>(c, "coarse", audiolm_pytorch::coarse_config);
  const auto& given = c.config.at("forward");
  expect_only(given, {"batch_size", "max_length", "prime_wave_input_sample_hz",
                      "return_coarse_generated_wave", "mask_out_generated_fine_tokens"});
  if (!given.value("return_coarse_generated_wave", false))
    model.fine = stage<FineTransformer>(c, "fine", audiolm_pytorch::fine_config);
  SoundStreamGan gan(audiolm_pytorch::soundstream_config(c.config.at("codec")));
  audiolm_pytorch::load_codec_weights(gan, below(c.weights, "codec."));
  model.codec = std::make_shared<SoundStreamCodec>(gan->codec);
  model.tokenizer = tokenizer(c);

  NoNoise draws;
  AudioLmRequest request;
  request.batch = given.value("batch_size", int64_t{1});
  request.semantic_length = given.value("max_length", int64_t{2048});
  request.coarse_frames = c.config.value("coarse_max_time_steps", int64_t{512});
  request.unique_consecutive = c.config.value("unique_consecutive", true);
  request.as_audiolm_pytorch = true;
  request.draws = &draws;
  if (c.has("in.prime_wave")) {
    request.prompt = c.in("prime_wave");
    request.batch = request.prompt.size(0);
    request.prompt_rate_hz = given.value("prime_wave_input_sample_hz", int64_t{16000});
    // Theirs is not cut to whole tokens unless it is told to.
    request.prompt_semantic = model.tokenizer->tokenize(
        resample_audio(request.prompt, request.prompt_rate_hz, model.tokenizer->rate_hz()));
  }
  if (c.has("in.text_embeds")) {
    request.text_features = c.in("text_embeds");
    request.batch = request.text_features.size(0);
  }
  const AudioLmResult result = generate(model, request);

  check.close("semantic_ids", result.semantic, c.out("semantic_ids"));
  if (c.has("out.coarse_ids")) {
    const int64_t frames = c.out("coarse_ids").size(1);
    check.close("coarse_ids",
                at::constant_pad_nd(result.coarse, {0, 0, 0, frames - result.coarse.size(1)}, kPadding),
                c.out("coarse_ids"));
  }
  for (int64_t row = 0; row < request.batch; ++row) {
    const at::Tensor codes = result.acoustic[row];
    const at::Tensor whole = codes.index({codes.ne(kPadding).all(-1)}).unsqueeze(0);
    const std::string name = fmt::format("acoustic_ids.{}", row);
    if (c.has("out." + name)) {
      const at::Tensor& want = c.out(name);
      check.close(name, whole, want.size(0) == 1 ? want : want.narrow(0, row, 1));
    }
    const at::Tensor& wave = result.waves[static_cast<size_t>(row)];
    if (c.has("out.wave")) check.close(fmt::format("wave {}", row), wave, c.out("wave")[row]);
    if (const std::string own = fmt::format("wave.{}", row); c.has("out." + own))
      check.close(own, wave, c.out(own));
  }
}

const bool registered = register_case("audiolm", "AudioLM", check_audiolm);

}  // namespace

}  // namespace melete::golden::cases_audiolm
