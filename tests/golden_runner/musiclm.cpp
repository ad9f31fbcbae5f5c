// MuLaN: its towers, its contrastive losses, and the whole.
#include "musiclm.h"

#include <torch/autograd.h>

#include <filesystem>
#include <optional>

#include "core/base/error.h"

namespace melete::golden {

using nlohmann::ordered_json;
using namespace musiclm;

MulanDraws::MulanDraws(const Case& recorded, const std::string& prefix) {
  for (const auto& [key, tensor] : below(recorded.io, prefix)) {
    if (key == "patch_dropout_noise") {
      patches_ = tensor;
    } else if (key == "spec_aug_uniform") {
      masks_ = tensor;
    } else if (key.ends_with("randperm") || key.ends_with("randint")) {
      vectors_.push_back(tensor);  // keys are numbered with two digits, so they come in order
    } else {
      fail("[golden] nothing here draws `{}{}`", prefix, key);
    }
  }
}

int64_t MulanDraws::integer(std::string_view what, int64_t, int64_t) {
  fail("[golden] no integer is recorded for {}", what);
}

at::Tensor MulanDraws::rows(std::string_view what, int64_t population, int64_t count) {
  require(!vectors_.empty(), "[golden] no draw left for {} of {} vectors out of {}", what, count, population);
  const at::Tensor drawn = vectors_.front();
  vectors_.pop_front();
  require(drawn.numel() >= count, "[golden] {} vectors are recorded for {}, wanted {}", drawn.numel(), what,
          count);
  return drawn.narrow(0, 0, count);
}

at::Tensor MulanDraws::uniform(std::string_view what, at::IntArrayRef shape) {
  require(masks_.defined(), "[golden] no draw is recorded for {}", what);
  const at::Tensor drawn = masks_.flatten().narrow(0, masks_used_, 2);
  masks_used_ += 2;
  return drawn.reshape(shape);
}

at::Tensor MulanDraws::normal(std::string_view what, at::IntArrayRef shape) {
  require(patches_.defined(), "[golden] no draw is recorded for {}", what);
  return patches_.reshape(shape);
}

TextInput padded_text(const at::Tensor& ids, int64_t pad_id) {
  return {ids, ids.ne(pad_id)};
}

TextInput text_of(const Case& c, const at::Tensor& ids, const ordered_json& tower) {
  if (c.has("in.mask")) return {ids, c.in("mask").to(at::kBool)};
  return padded_text(ids, tower.value("pad_id", int64_t{0}));
}

Mulan load_mulan(const Case& c, const std::string& their_prefix, const char* audio, const char* text) {
  Mulan model(musiclm_pytorch::mulan_config(c.config.at(audio), c.config.at(text),
                                            c.config.value("mulan", ordered_json::object())));
  TensorMap own;
  for (const auto& [name, tensor] : c.weights)
    if (name.starts_with(their_prefix)) own[name] = tensor;
  musiclm_pytorch::load(*model, own, {"", their_prefix});
  return model;
}

std::shared_ptr<const TextTokenizer> clip_tokenizer(const Case& c) {
  const std::string merges = c.folder + "/../tokenizer/bpe_merges_48894.txt";
  if (!std::filesystem::exists(merges)) return nullptr;
  return std::make_shared<ClipTokenizer>(merges);
}

bool softmax_ignores(const std::string& theirs) {
  return theirs.ends_with("dynamic_pos_bias_mlp.4.bias");
}

bool trains(const Case& c) {
  const auto mode = c.json.value("mode", ordered_json());
  return mode.is_string() && mode.get<std::string>().starts_with("train");
}

namespace {

// A gradient that is nothing but rounding is as large as its layer's lets it be. How many times larger than
// its own that is; 1 for all others.
double scale_of_rounding(const Case& c, const std::string& key) {
  if (!softmax_ignores(key)) return 1;
  const std::string weight = key.substr(0, key.size() - 4) + "weight";
  const double own = c.get(key).abs().max().item<double>();
  return own == 0 ? 1 : std::max(1.0, c.get(weight).abs().max().item<double>() / own);
}

}  // namespace

void check_gradients(const Case& c, Checker& check, const torch::nn::Module& module,
                     const musiclm_pytorch::Place& place) {
  size_t found = 0;
  for (const auto& pair : musiclm_pytorch::pairs(module, place))
    if (const std::string key = "grad." + pair.theirs; c.has(key)) {
      ++found;
      const at::Tensor& want = c.get(key);
      const at::Tensor got = pair.tensor.grad();
      check.gradient(key, got.defined() ? got.reshape(want.sizes()) : got, want,
                     kGradientTolerance * scale_of_rounding(c, key));
    }
  if (found != below(c.io, "grad.").size()) check.fail("some gradients of the case belong to nothing here");
}

namespace {

// Upstream lists what all layers but the last make.
at::Tensor all_but_last(const TowerOutput& output) {
  return at::stack(at::TensorList(output.layers).slice(0, output.layers.size() - 1));
}

void check_loss_weight(const Case& c, Checker& check, const TowerOutput& output) {
  check.close("out", output.embedding, c.out("out"));
  if (c.has("out.all_layers")) check.close("all_layers", all_but_last(output), c.out("all_layers"));
  const at::Tensor loss = (output.embedding * c.in("loss_weight")).sum();
  check.close("loss", loss, c.out("loss"));
  loss.backward();
}

// An argument of the call, wherever a case says it.
bool keeps_all_patches(const Case& c) {
  const char* name = "force_no_patch_dropout";
  const auto& inputs = c.json.at("inputs");
  if (inputs.contains(name)) return inputs[name].at("value").get<bool>();
  for (const char* part : {"forward", "call"})
    if (c.json.contains(part)) return c.json[part].value(name, false);
  return c.json.value(name, false);
}

void check_audio_tower(const Case& c, Checker& check) {
  AudioTowerConfig config = musiclm_pytorch::audio_config(c.config);
  if (keeps_all_patches(c)) config.patch_dropout = 0;
  AudioTower tower(config);
  musiclm_pytorch::load(*tower, c.weights, {"audio.", "audio."});
  const AudioInput input{c.in("x"), {}};
  std::optional<AudioPlan> plan;
  if (trains(c)) {
    MulanDraws draws(c, "rand.");
    plan = tower->plan(input, draws);
  }

  at::Tensor spectrogram = tower->spectrogram(input);
  if (c.has("out.spectrogram")) check.close("spectrogram", spectrogram, c.out("spectrogram"));
  if (plan) spectrogram = augment(spectrogram, plan->augment);
  if (c.has("out.augmented")) check.close("augmented", spectrogram, c.out("augmented"));
  const at::Tensor embedded = tower->embed_patches(spectrogram);
  if (c.has("out.patch_tokens")) check.close("patch_tokens", embedded, c.out("patch_tokens"));
  const PatchGrid grid{embedded.size(1), embedded.size(2)};
  if (c.has("out.posemb"))
    check.close("posemb", sine_positions(grid, embedded.size(3), at::kFloat).view(c.out("posemb").sizes()),
                c.out("posemb"));
  if (c.has("out.rel_pos_bias")) {
    const at::Tensor& want = c.out("rel_pos_bias");
    at::Tensor kept = at::arange(grid.patches(), at::kLong).unsqueeze(0);
    if (want.dim() == 4) kept = std::get<1>(plan->patch_order.topk(want.size(-1), 1));
    std::vector<at::Tensor> biases;
    for (int64_t row = 0; row < kept.size(0); ++row)
      biases.push_back(tower->position_bias_of(grid, kept[row]).transpose(0, 1));
    check.close("rel_pos_bias", want.dim() == 4 ? at::stack(biases) : biases.front(), want);
  }
  check_loss_weight(c, check, tower->forward(input, plan ? &*plan : nullptr));
  check_gradients(c, check, *tower, {"audio.", "audio."});
}

void check_text_tower(const Case& c, Checker& check) {
  TextTower tower(musiclm_pytorch::text_config(c.config));
  musiclm_pytorch::load(*tower, c.weights, {"text.", "text."});
  if (const auto& inputs = c.json.at("inputs"); inputs.contains("raw_texts"))
    if (const auto tokenizer = clip_tokenizer(c)) {
      const auto texts = inputs["raw_texts"].at("value").get<std::vector<std::string>>();
      check.close("ids", tokenize(*tokenizer, texts, tower->config().window).input.ids, c.in("ids"));
    }
  check_loss_weight(c, check, tower->forward(text_of(c, c.in("ids"), c.config)));
  check_gradients(c, check, *tower, {"text.", "text."});
}

void check_contrast(const Case& c, Checker& check, const ContrastConfig& config) {
  Contrast contrast(config, c.config.value("layers", int64_t{1}));
  musiclm_pytorch::load(*contrast, c.weights, {"contrast.", "contrast."});
  const at::Tensor audio = c.in("audio_latents").clone().set_requires_grad(true);
  const at::Tensor text = c.in("text_latents").clone().set_requires_grad(true);
  const at::Tensor loss = contrast(ContrastRows{audio, text, {}, {}});
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  check.gradient("d_audio_latents", audio.grad(), c.out("d_audio_latents"));
  check.gradient("d_text_latents", text.grad(), c.out("d_text_latents"));
  check_gradients(c, check, *contrast, {"contrast.", "contrast."});
}

void check_softmax(const Case& c, Checker& check) {
  check_contrast(c, check, musiclm_pytorch::softmax_config(c.config));
}

void check_sigmoid(const Case& c, Checker& check) {
  check_contrast(c, check, musiclm_pytorch::sigmoid_config(c.config));
}

void check_layers(const Case& c, Checker& check) {
  expect_only(c.config, {"audio_dim", "text_dim", "dim_latent", "layers", "decoupled_contrastive_learning",
                         "sigmoid_contrastive_loss"});
  ContrastConfig config;
  config.kind = c.config.value("sigmoid_contrastive_loss", false)         ? "sigmoid"
                : c.config.value("decoupled_contrastive_learning", false) ? "decoupled"
                                                                          : "softmax";
  const auto size = [&](const char* name) { return c.config.at(name).get<int64_t>(); };
  LayerContrast contrast(config, size("layers"), size("audio_dim"), size("text_dim"), size("dim_latent"));
  const musiclm_pytorch::Place place{"layer_contrast.", "multi_layer_contrastive_learning."};
  musiclm_pytorch::load(*contrast, c.weights, place);
  const at::Tensor audio = c.in("audio_layers").clone().set_requires_grad(true);
  const at::Tensor text = c.in("text_layers").clone().set_requires_grad(true);
  const at::Tensor loss = contrast->contrast(
      ContrastRows{contrast->left(audio.mean(2)), contrast->right(text.select(2, 0)), {}, {}});
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  check.gradient("d_audio_layers", audio.grad(), c.out("d_audio_layers"));
  check.gradient("d_text_layers", text.grad(), c.out("d_text_layers"));
  check_gradients(c, check, *contrast, place);
}

void check_mulan(const Case& c, Checker& check) {
  Mulan model = load_mulan(c);
  std::optional<MulanDraws> draws;
  if (trains(c)) draws.emplace(c, "rand.");
  const TextInput text = text_of(c, c.in("texts"), c.config.at("text_transformer"));
  const PairLatents latents = model->embed_pairs({c.in("wavs"), {}}, text, draws ? &*draws : nullptr);
  const MulanLosses losses = model->losses(latents);
  check.close("audio_latents", latents.audio.values, c.out("audio_latents"));
  check.close("text_latents", latents.text.values, c.out("text_latents"));
  if (c.has("out.cl_loss")) check.close("cl_loss", losses.contrast, c.out("cl_loss"));
  if (c.has("out.hierarchical_loss"))
    check.close("hierarchical_loss", losses.layers, c.out("hierarchical_loss"));
  check.close("loss", losses.total, c.out("loss"));
  const at::Tensor pairwise = at::mm(latents.audio.values, latents.text.values.t());
  if (c.has("out.pairwise")) check.close("pairwise", pairwise, c.out("pairwise"));
  if (c.has("out.similarities")) check.close("similarities", pairwise.diagonal(), c.out("similarities"));
  losses.total.backward();
  check_gradients(c, check, *model, {});
  // Upstream's derived tensors follow from the settings.
  const TensorMap derived = musiclm_pytorch::derived_tensors(model->config());
  for (const auto& [name, tensor] : c.weights)
    if (musiclm_pytorch::is_derived(name)) check.close(name, derived.at(name), tensor);
}

const bool registered = register_case("musiclm", "AudioSpectrogramTransformer", check_audio_tower) &&
                        register_case("musiclm", "TextTransformer", check_text_tower) &&
                        register_case("musiclm", "SoftmaxContrastiveLearning", check_softmax) &&
                        register_case("musiclm", "SigmoidContrastiveLearning", check_sigmoid) &&
                        register_case("musiclm", "MultiLayerContrastiveLoss", check_layers) &&
                        register_case("musiclm", "MuLaN", check_mulan);

}  // namespace

}  // namespace melete::golden
