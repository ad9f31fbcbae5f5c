// HuBERT against Hugging Face's, and its k-means tokens against audiolm-pytorch's.
#include "core/base/error.h"
#include "golden.h"
#include "io/resample_audio.h"
#include "nn/frozen.h"
#include "pretrained/hubert_names.h"
#include "pretrained/kmeans_tokenizer.h"

namespace melete::golden::cases_hubert {

namespace {

void check_hubert(const Case& c, Checker& check) {
  const FrozenScope frozen;
  const HubertConfig config = foreign_hubert::from_config_json(c.config.at("hf_config"));
  TensorMap weights = c.weights;
  const auto centres = weights.find("kmeans.cluster_centers");
  require(centres != weights.end(), "the case has no kmeans.cluster_centers");
  const at::Tensor centroids = centres->second;
  weights.erase(centres);
  Hubert model = foreign_hubert::load(config, weights, c.name);

  at::Tensor wave = c.in("wave");
  if (const auto rate = c.config.find("input_sample_hz"); rate != c.config.end() && !rate->is_null())
    wave =
        resample_audio(wave, rate->get<int64_t>(), c.config.value("target_sample_hz", config.sample_rate_hz));
  if (const auto multiple = c.config.find("seq_len_multiple_of");
      multiple != c.config.end() && !multiple->is_null())
    wave = cut_to_multiple(wave, multiple->get<int64_t>());

  if (c.has("out.conv_features"))
    check.close("conv_features", model->conv_features(wave), c.out("conv_features"));
  for (int64_t layer = 0; layer <= config.layers; ++layer) {
    const std::string name = fmt::format("hidden_state.{}", layer);
    if (c.has("out." + name)) check.close(name, model->hidden_state(wave, layer), c.out(name));
  }
  if (c.has("out.last_hidden_state"))
    check.close("last_hidden_state", model->forward(wave), c.out("last_hidden_state"));
  const KmeansTokenizer tokenizer(
      std::make_unique<HubertFeatures>(model, c.config.at("output_layer").get<int64_t>()),
      Centroids{centroids, {}, {}});
  check.close("ids", tokenizer.tokenize(wave), c.out("ids"));
}

const bool registered = register_case("audiolm", "HubertWithKmeans (HF HubertModel + k-means)", check_hubert);

}  // namespace

}  // namespace melete::golden::cases_hubert
