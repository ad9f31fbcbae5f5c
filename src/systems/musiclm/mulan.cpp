#include "systems/musiclm/mulan.h"

#include <algorithm>
#include <optional>

#include "config/schema.h"
#include "core/base/error.h"
#include "nn/chunked.h"
#include "nn/codebook.h"
#include "nn/draws.h"

namespace melete::musiclm {

namespace {

std::vector<at::Tensor> as_list(const Latents& latents) {
  if (!latents.layers.defined()) return {latents.values};
  // Chunks are rows, which stand first.
  return {latents.values, latents.layers.transpose(0, 1)};
}

Latents from_list(const std::vector<at::Tensor>& list) {
  return {list[0], list.size() > 1 ? list[1].transpose(0, 1) : at::Tensor()};
}

// Mean of the positions that are there, of each of these layers. [layers, batch, dim]
at::Tensor pooled_layers(const TowerOutput& output, const std::vector<int64_t>& numbers) {
  std::vector<at::Tensor> pooled;
  for (const int64_t number : numbers)
    pooled.push_back(mean_of_seen(output.layers.at(static_cast<size_t>(number)), output.hidden));
  return at::stack(pooled);
}

at::Tensor first_positions(const TowerOutput& output, const std::vector<int64_t>& numbers) {
  std::vector<at::Tensor> first;
  for (const int64_t number : numbers)
    first.push_back(output.layers.at(static_cast<size_t>(number)).select(1, 0));
  return at::stack(first);
}

}  // namespace

void describe(Schema& schema, MulanConfig& config) {
  schema.option("sample_rate_hz", config.sample_rate_hz, "of the sound it hears").at_least(1).unit("Hz");
  schema.option("dim", config.dim, "of the joint space").at_least(1);
  schema.section("audio", config.audio, "the tower that hears");
  schema.section("text", config.text, "the tower that reads");
  schema.section("contrast", config.contrast, "the loss that brings pairs together");
  schema
      .option("contrast_layers", config.contrast_layers,
              "layers of both towers that are held against each other, too; -1: all but the last")
      .at_least(-1);
}

std::vector<int64_t> spread_layers(int64_t count, int64_t depth) {
  require(count < depth, "[mulan] a tower of {} layers has {} before its last, got contrast_layers {}", depth,
          depth - 1, count);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(i * depth / count);
  return numbers;
}

MulanImpl::MulanImpl(const MulanConfig& config) : config_(config) {
  const int64_t audio_dim = config.audio.transformer.dim, text_dim = config.text.transformer.dim;
  audio = register_module("audio", AudioTower(config.audio));
  text = register_module("text", TextTower(config.text));
  audio_head = register_module("audio_head", linear(audio_dim, config.dim, true));
  text_head = register_module("text_head", linear(text_dim, config.dim, true));
  contrast = register_module("contrast", Contrast(config.contrast));
  const int64_t audio_depth = config.audio.transformer.depth, text_depth = config.text.transformer.depth;
  const int64_t layers =
      config.contrast_layers < 0 ? std::min(audio_depth, text_depth) - 1 : config.contrast_layers;
  if (layers == 0) return;
  audio_layers_ = spread_layers(layers, audio_depth);
  text_layers_ = spread_layers(layers, text_depth);
  // The heads of layers start at the usual scale whatever that of the joint space is.
  ContrastConfig between = config.contrast;
  between.scale = ContrastConfig().scale;
  between.bias = ContrastConfig().bias;
  layer_contrast =
      register_module("layer_contrast", LayerContrast(between, layers, audio_dim, text_dim, config.dim));
}

Latents MulanImpl::embed_audio(const AudioInput& input, const AudioPlan* plan, Draws* draws) {
  const TowerOutput output = audio->forward(input, plan, draws);
  Latents latents{unit_vectors(project(output.embedding, audio_head)), {}};
  if (!layer_contrast.is_empty()) latents.layers = layer_contrast->left(pooled_layers(output, audio_layers_));
  return latents;
}

Latents MulanImpl::embed_text(const TextInput& input, Draws* draws) {
  const TowerOutput output = text->forward(input, draws);
  Latents latents{unit_vectors(project(output.embedding, text_head)), {}};
  if (!layer_contrast.is_empty())
    latents.layers = layer_contrast->right(first_positions(output, text_layers_));
  return latents;
}

PairLatents MulanImpl::embed_pairs(const AudioInput& sound, const TextInput& words, Draws* draws,
                                   int64_t chunk) {
  require(sound.batch() == words.batch(), "[mulan] {} recordings and {} texts are no pairs", sound.batch(),
          words.batch());
  std::optional<AudioPlan> plan;
  if (draws != nullptr) plan = audio->plan(sound, *draws);
  if (chunk <= 0 || chunk >= sound.batch())
    return {embed_audio(sound, plan ? &*plan : nullptr, draws), embed_text(words, draws)};
  const auto hear = [this, sound, plan](const RowRange& rows) {
    std::optional<AudioPlan> part;
    if (plan) part = plan->rows(rows.begin, rows.end);
    return as_list(embed_audio(sound.rows(rows.begin, rows.end), part ? &*part : nullptr, rows.draws));
  };
  const auto read = [this, words](const RowRange& rows) {
    return as_list(embed_text(words.rows(rows.begin, rows.end), rows.draws));
  };
  const std::vector<at::Tensor> weights = parameters();
  return {from_list(chunked(weights, sound.batch(), chunk, draws, hear)),
          from_list(chunked(weights, sound.batch(), chunk, draws, read))};
}

MulanLosses MulanImpl::losses(const PairLatents& own, const PairLatents* all, int64_t first_row) {
  const auto rows = [&](at::Tensor Latents::*of) {
    ContrastRows pairs{own.audio.*of, own.text.*of, {}, {}, first_row};
    if (all != nullptr) {
      pairs.all_left = all->audio.*of;
      pairs.all_right = all->text.*of;
    }
    return pairs;
  };
  MulanLosses losses;
  losses.contrast = contrast(rows(&Latents::values));
  losses.total = losses.contrast;
  if (!layer_contrast.is_empty()) {
    losses.layers = layer_contrast->contrast(rows(&Latents::layers));
    losses.total = losses.total + losses.layers;
  }
  return losses;
}

}  // namespace melete::musiclm
