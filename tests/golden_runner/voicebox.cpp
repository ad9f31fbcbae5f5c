#include "voicebox.h"

#include "core/base/error.h"
#include "pretrained/encodec_names.h"
#include "pretrained/vocos_names.h"

namespace melete::golden {

VoiceboxDraws::VoiceboxDraws(const Case& recorded, std::string prefix, double low, double high)
    : case_(recorded), prefix_(std::move(prefix)), low_(low), high_(high) {}

int64_t VoiceboxDraws::integer(std::string_view what, int64_t, int64_t) {
  fail("no recorded integer for {}", what);
}

at::Tensor VoiceboxDraws::rows(std::string_view what, int64_t, int64_t) {
  fail("no recorded rows for {}", what);
}

const at::Tensor& VoiceboxDraws::recorded(std::string_view what) const {
  static const std::map<std::string, std::string, std::less<>> names = {
      {"times", "times"},
      {"mask_fraction", "frac_lengths"},
      {"mask_start", "start_uniform"},
      {"condition_drop", "cond_drop_uniform"},
      {"bernoulli", "uniform"}};
  if (what == "noise") return case_.rand(prefix_ + (case_.has("rand." + prefix_ + "x0") ? "x0" : "y0"));
  const auto found = names.find(what);
  require(found != names.end(), "upstream draws nothing like {}", what);
  return case_.rand(prefix_ + found->second);
}

at::Tensor VoiceboxDraws::uniform(std::string_view what, at::IntArrayRef shape) {
  const at::Tensor values = recorded(what).reshape(shape);
  if (what != "mask_fraction" || low_ == high_) return values;
  return (values.to(at::kDouble) - low_) / (high_ - low_);  // in double, so that it comes back as it was
}

at::Tensor VoiceboxDraws::normal(std::string_view what, at::IntArrayRef shape) {
  return recorded(what).reshape(shape);
}

at::Tensor optional_input(const Case& c, const std::string& key) {
  return c.has("in." + key) ? c.in(key) : at::Tensor();
}

TensorMap weights_of(const Case& c, const std::string& prefix) {
  const TensorMap part = below(c.weights, prefix);
  return part.empty() ? c.weights : part;
}

VocosConfig vocos_config(const Case& c, const TensorMap& weights) {
  VocosConfig config = foreign_vocos::from_weights(weights, c.name);
  const auto& place = c.json.contains("vocos") ? c.json : c.config;
  if (const auto told = place.find("vocos"); told != place.end() && told->is_object()) {
    config.hop = told->value("hop", told->value("hop_length", config.hop));
    if (told->contains("padding")) config.edges = told->at("padding") == "same" ? "same" : "centre";
  }
  return config;
}

std::unique_ptr<EncodecVocos> encodec_vocos(const Case& c, const TensorMap& weights) {
  const std::string& where = c.name;
  const TensorMap codec = below(weights, "encodec.model."), vocos = below(weights, "vocos.");
  EncodecConfig config = foreign_encodec::from_weights(codec, where);
  config.compress = 2;  // upstream's; an odd number of filters does not tell
  const int64_t bandwidth = weights.at("bandwidth_id").item<int64_t>();
  Encodec model = foreign_encodec::load(config, codec, where);
  // Upstream quantizes once more with a copy of the codebooks.
  for (int64_t i = 0; i < config.quantizers; ++i)
    require(weights.at(fmt::format("encodec.rq.layers.{}._codebook.embed", i))[0].equal(model->codebooks[i]),
            "codebook {} differs from its copy", i);
  return std::make_unique<EncodecVocos>(model, foreign_vocos::load(vocos_config(c, vocos), vocos, where),
                                        bandwidth);
}

voicebox::Voicebox voicebox_network(const Case& c, const nlohmann::ordered_json& arguments,
                                    const TensorMap& weights, int64_t latent_dim) {
  voicebox::Voicebox model(voicebox_pytorch::voicebox_config(arguments, latent_dim));
  voicebox_pytorch::load(*model, weights, c.name);
  // What a file without arguments would be taken for
  auto told = voicebox_pytorch::voicebox_arguments_of_file(weights, c.name);
  auto seen = voicebox_pytorch::voicebox_config(told, latent_dim), given = model->config();
  for (auto* config : {&seen, &given}) {
    config->transformer.attention_dropout = config->transformer.feed_forward_dropout = 0;
    if (config->positions.groups == 0) config->positions.groups = config->transformer.dim;
    if (config->tokens == 0) config->token_dim = 0;
    config->transformer.feed_forward_multiplier = 0;  // several give the same width
  }
  require(schema_of(seen).json() == schema_of(given).json(), "the weights tell {}, the case says {}",
          schema_of(seen).json().dump(), schema_of(given).json().dump());
  return model;
}

void check_gradients(const Case& c, Checker& check, torch::nn::Module& module, const std::string& prefix) {
  for (const auto& pair : voicebox_pytorch::pairs(module)) {
    const std::string key = "grad." + prefix + pair.theirs;
    if (!c.has(key)) continue;
    const at::Tensor gradient = pair.tensor.grad();
    check.gradient(key, gradient.defined() ? gradient.reshape(c.get(key).sizes()) : gradient, c.get(key),
                   kVoiceboxGradient);
  }
}

}  // namespace melete::golden
