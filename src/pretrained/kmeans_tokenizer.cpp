#include "pretrained/kmeans_tokenizer.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "nn/identity.h"

namespace melete {

namespace {

using Json = nlohmann::ordered_json;

// The tensors below a prefix, without it.
TensorMap below(const TensorMap& tensors, const std::string& prefix) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) result.emplace(name.substr(prefix.size()), tensor);
  return result;
}

template <class Formula>
std::unique_ptr<FrameFeatures> formula_features(const Json& config) {
  typename Formula::Config settings;
  schema_of(settings).apply(config.at(Formula::kName));
  return std::make_unique<FormulaFeatures<Formula>>(settings);
}

}  // namespace

HubertFeatures::HubertFeatures(Hubert model, int64_t layer) : model_(std::move(model)), layer_(layer) {
  require(layer >= 0 && layer <= model_->config().layers,
          "[hubert] this model has layers 0 (what the first one sees) .. {}, layer {} was asked for",
          model_->config().layers, layer);
  freeze(*model_);
}

at::Tensor HubertFeatures::frames_of(const at::Tensor& audio) const {
  const at::Tensor wave = audio.to(device_of(*model_));
  const FrozenScope frozen(wave);
  return model_->hidden_state(wave, layer_).to(audio.device());
}

Json HubertFeatures::config() const {
  HubertConfig config = model_->config();
  config.layers = layer_;
  return {{"kind", "hubert"}, {"hubert", schema_of(config).json()}};
}

TensorMap HubertFeatures::tensors() const {
  TensorMap result;
  for (const auto& [name, tensor] : tensors_of(*model_)) {
    if (name.starts_with("layers.") && std::stoll(name.substr(7)) >= layer_) continue;
    result.emplace(name, tensor);
  }
  return result;
}

at::Tensor nearest_centroid(const at::Tensor& x, const at::Tensor& centroids) {
  // |x - c|^2 without |x|^2, which is the same for every centroid.
  return (centroids.square().sum(1) - 2 * at::matmul(x, centroids.t())).argmin(-1);
}

KmeansTokenizer::KmeansTokenizer(std::unique_ptr<FrameFeatures> features, Centroids centroids)
    : features_(std::move(features)), centroids_(std::move(centroids)) {
  const at::Tensor& vectors = centroids_.vectors;
  require(vectors.defined() && vectors.dim() == 2 && vectors.size(1) == features_->dim(),
          "[semantic tokenizer] expected centroids [clusters, {}] for {} features, got [{}]",
          features_->dim(), features_->kind(),
          vectors.defined() ? fmt::format("{}", fmt::join(vectors.sizes(), ", ")) : std::string());
  require(centroids_.mean.defined() == centroids_.scale.defined(),
          "[semantic tokenizer] mean and scale belong together");
  centroids_.vectors = vectors.detach().to(at::kFloat).contiguous();
  identity_ = identity_of("semantic-tokenizer", config(), tensors());
}

at::Tensor KmeansTokenizer::tokenize(const at::Tensor& audio) const {
  require(audio.dim() == 2, "[semantic tokenizer] expected audio [batch, samples], got {} dimensions",
          audio.dim());
  const at::Tensor wave = audio.to(centroids_.vectors.device());
  const FrozenScope frozen(wave);
  at::Tensor x = features_->frames_of(wave);
  if (centroids_.mean.defined()) x = (x - centroids_.mean) * centroids_.scale;
  return nearest_centroid(x, centroids_.vectors).to(audio.device());
}

void KmeansTokenizer::move_to(at::Device device) {
  features_->move_to(device);
  for (at::Tensor* tensor : {&centroids_.vectors, &centroids_.mean, &centroids_.scale})
    if (tensor->defined()) *tensor = tensor->to(device);
}

Json KmeansTokenizer::config() const {
  return {{"kind", "kmeans"}, {"features", features_->config()}};
}

TensorMap KmeansTokenizer::tensors() const {
  TensorMap result{{"centroids", centroids_.vectors}};
  if (centroids_.mean.defined()) {
    result.emplace("mean", centroids_.mean);
    result.emplace("scale", centroids_.scale);
  }
  for (const auto& [name, tensor] : features_->tensors()) result.emplace("features." + name, tensor);
  return result;
}

std::unique_ptr<FrameFeatures> make_features(const Json& config, const TensorMap& tensors,
                                             const std::string& where) {
  const std::string kind = config.value("kind", "");
  if (kind == Mfcc::kName) return formula_features<Mfcc>(config);
  if (kind == Semitones::kName) return formula_features<Semitones>(config);
  require(kind == "hubert", "[{}] expected features `mfcc`, `semitones` or `hubert`, got `{}`", where, kind);
  HubertConfig hubert;
  schema_of(hubert).apply(config.at("hubert"));
  Hubert model(hubert);
  load_tensors(*model, tensors, where);
  return std::make_unique<HubertFeatures>(std::move(model), hubert.layers);
}

std::unique_ptr<KmeansTokenizer> make_kmeans_tokenizer(const Json& config, const TensorMap& tensors,
                                                       const std::string& where) {
  auto features = make_features(config.at("features"), below(tensors, "features."), where);
  const auto tensor = [&](const char* name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? at::Tensor() : found->second.clone();
  };
  require(tensors.count("centroids") == 1, "[{}] has no `centroids`", where);
  return std::make_unique<KmeansTokenizer>(std::move(features),
                                           Centroids{tensor("centroids"), tensor("mean"), tensor("scale")});
}

}  // namespace melete
