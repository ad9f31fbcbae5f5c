#include "systems/musiclm/audio_tower.h"

#include <algorithm>
#include <limits>

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "nn/draws.h"

namespace melete::musiclm {

namespace {

at::Tensor rows_of(const at::Tensor& all, int64_t begin, int64_t end) {
  return all.defined() ? all.slice(0, begin, end) : all;
}

}  // namespace

void describe(Schema& schema, AudioTowerConfig& config) {
  schema.section("transformer", config.transformer, "the tower's transformer");
  schema
      .option("input", config.input,
              "wave: sound; frames: spectrograms [frames, bins]; bins: spectrograms [bins, frames]")
      .one_of({"wave", "frames", "bins"});
  schema.section("spectrogram", config.spectrogram, "what the tower sees of a wave");
  schema.option("patch", config.patch, "bins and frames of a patch").at_least(1);
  schema.section("augment", config.augment, "SpecAugment, in training");
  schema.option("patch_dropout", config.patch_dropout, "in training: share of the patches that are left out")
      .at_least(0)
      .at_most(1);
}

AudioInput AudioInput::rows(int64_t begin, int64_t end) const {
  return {rows_of(audio, begin, end), rows_of(lengths, begin, end)};
}

AudioPlan AudioPlan::rows(int64_t begin, int64_t end) const {
  return {augment.rows(begin, end), rows_of(patch_order, begin, end)};
}

AudioTowerImpl::AudioTowerImpl(const AudioTowerConfig& config) : config_(config) {
  require(config.patch.size() == 2, "[audio tower] expected a patch as bins and frames, got {} numbers",
          config.patch.size());
  const int64_t dim = config.transformer.dim, patch = config.patch[0] * config.patch[1];
  patch_norm = register_module("patch_norm", Norm(patch));
  patch_projection = register_module("patch_projection", linear(patch, dim, true));
  token_norm = register_module("token_norm", Norm(dim));
  position_bias = register_module("position_bias", BiasNetwork(2, dim / 4, config.transformer.heads, 2));
  transformer = register_module("transformer", TowerTransformer(config.transformer));
  norm = register_module("norm", Norm(dim, false));
}

at::Tensor AudioTowerImpl::spectrogram(const AudioInput& input) const {
  if (config_.input == "wave") return power_spectrogram(input.audio, input.lengths, config_.spectrogram);
  require(input.audio.dim() == 3, "[audio tower] expected spectrograms [batch, {}], got {} dimensions",
          config_.input == "frames" ? "frames, bins" : "bins, frames", input.audio.dim());
  const at::Tensor x = config_.input == "frames" ? input.audio.transpose(1, 2) : input.audio;
  if (!input.lengths.defined()) return x;
  const at::Tensor lengths = sent_to(x.device(), input.lengths);
  const at::Tensor place = at::arange(x.size(2), lengths.options()).view({1, 1, -1});
  return x.masked_fill(place.ge(lengths.view({-1, 1, 1})), 0);
}

int64_t AudioTowerImpl::frames(int64_t length) const {
  return config_.input == "wave" ? config_.spectrogram.frames(length) : length;
}

int64_t AudioTowerImpl::shortest() const {
  const SpectrogramConfig& spectrogram = config_.spectrogram;
  const bool mirrored = config_.input == "wave" && spectrogram.centred && spectrogram.edges == "reflect";
  int64_t length = mirrored ? std::max<int64_t>(1, spectrogram.n_fft / 2 + 1 - 2 * spectrogram.padding) : 1;
  while (frames(length) < config_.patch[1]) ++length;
  return length;
}

int64_t AudioTowerImpl::room(const AudioInput& input) const {
  return frames(input.audio.size(config_.input == "frames" ? 1 : -1));
}

std::vector<int64_t> AudioTowerImpl::frames_of(const AudioInput& input) const {
  std::vector<int64_t> each(static_cast<size_t>(input.batch()), room(input));
  if (!input.lengths.defined()) return each;
  const at::Tensor lengths = input.lengths.to(at::kCPU).contiguous();
  for (size_t row = 0; row < each.size(); ++row) each[row] = frames(lengths.data_ptr<int64_t>()[row]);
  return each;
}

PatchGrid AudioTowerImpl::grid_of(int64_t bins, int64_t frames) const {
  const PatchGrid grid{bins / config_.patch[0], frames / config_.patch[1]};
  require(grid.patches() > 0, "[audio tower] {} bins x {} frames hold no patch of {} x {}; use longer sound",
          bins, frames, config_.patch[0], config_.patch[1]);
  return grid;
}

AudioPlan AudioTowerImpl::plan(const AudioInput& input, Draws& draws) const {
  const int64_t bins = config_.input == "wave" ? config_.spectrogram.bins()
                                               : input.audio.size(config_.input == "frames" ? 2 : 1);
  AudioPlan plan;
  plan.augment = draw_augmentation(config_.augment, bins, frames_of(input), draws);
  if (config_.patch_dropout > 0) {
    const int64_t width = stretched_frames(room(input), plan.augment.speed);
    plan.patch_order = draws.normal("patch_dropout", {input.batch(), grid_of(bins, width).patches()});
  }
  return plan;
}

at::Tensor AudioTowerImpl::embed_patches(const at::Tensor& spectrogram) {
  const PatchGrid grid = grid_of(spectrogram.size(1), spectrogram.size(2));
  const int64_t high = config_.patch[0], wide = config_.patch[1];
  const at::Tensor patches = spectrogram.slice(1, 0, grid.bands * high)
                                 .slice(2, 0, grid.columns * wide)
                                 .reshape({-1, grid.bands, high, grid.columns, wide})
                                 .transpose(2, 3)
                                 .flatten(3);
  return token_norm(project(patch_norm(patches), patch_projection));
}

at::Tensor AudioTowerImpl::position_bias_of(const PatchGrid& grid, const at::Tensor& patches) {
  const auto options = at::TensorOptions(at::kFloat).device(patches.device());
  return gather_offsets(position_bias(offset_table(grid, options)), patches, grid);
}

// What goes into the transformer.
struct AudioTowerImpl::Tokens {
  at::Tensor values;  // [batch, n, dim]
  TowerView view;
};

// columns: how many of the grid's each row has
AudioTowerImpl::Tokens AudioTowerImpl::tokens(const at::Tensor& embedded, const PatchGrid& grid,
                                              const std::vector<int64_t>& columns, const AudioPlan* plan) {
  const int64_t batch = embedded.size(0), dim = embedded.size(3);
  const auto options = embedded.options().dtype(at::kFloat).requires_grad(false);
  const auto whole = options.dtype(at::kLong);
  const at::Tensor by_offset = position_bias(offset_table(grid, options));
  const at::Tensor patches = at::arange(grid.patches(), whole);
  const bool equal = *std::min_element(columns.begin(), columns.end()) == grid.columns;
  at::Tensor missing;  // bool [batch, patches]
  if (!equal)
    missing = at::remainder(patches, grid.columns)
                  .unsqueeze(0)
                  .ge(sent_to(whole.device(), at::tensor(columns, at::kLong)).unsqueeze(1));
  Tokens result;
  result.values = embedded.flatten(1, 2) + sine_positions(grid, dim, options);
  if (plan == nullptr || !plan->patch_order.defined()) {
    result.view.hidden = missing;
    result.view.biases = {gather_offsets(by_offset, patches, grid)};
    return result;
  }
  // Every row keeps its share of patches; a shorter one has room left, which is hidden.
  const auto kept = [&](int64_t all) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(all) * (1 - config_.patch_dropout)));
  };
  at::Tensor order = sent_to(embedded.device(), plan->patch_order);
  if (!equal) order = order.masked_fill(missing, -std::numeric_limits<double>::infinity());
  const at::Tensor keep = std::get<1>(order.topk(kept(grid.patches()), 1));  // [batch, kept]
  result.values = result.values.gather(1, keep.unsqueeze(2).expand({batch, keep.size(1), dim}));
  for (int64_t row = 0; row < batch; ++row)
    result.view.biases.push_back(gather_offsets(by_offset, keep[row], grid));
  if (equal) return result;
  std::vector<int64_t> counts;
  for (const int64_t own : columns) counts.push_back(kept(grid.bands * own));
  result.view.hidden = at::arange(keep.size(1), whole)
                           .unsqueeze(0)
                           .ge(sent_to(whole.device(), at::tensor(counts, at::kLong)).unsqueeze(1));
  return result;
}

TowerOutput AudioTowerImpl::forward(const AudioInput& input, const AudioPlan* plan, Draws* draws) {
  at::Tensor x = spectrogram(input);
  std::vector<int64_t> columns = frames_of(input);
  if (plan != nullptr) x = augment(x, plan->augment);
  for (size_t row = 0; row < columns.size(); ++row) {
    const int64_t left = plan ? stretched_frames(columns[row], plan->augment.speed) : columns[row];
    columns[row] = left / config_.patch[1];
    require(columns[row] > 0,
            "[audio tower] item {} has {} frames, fewer than the {} of a patch; use longer sound", row, left,
            config_.patch[1]);
  }
  const Tokens given = tokens(embed_patches(x), grid_of(x.size(1), x.size(2)), columns, plan);
  TowerOutput output;
  output.layers = transformer->forward(given.values, given.view, draws);
  output.hidden = given.view.hidden;
  output.embedding = norm(mean_of_seen(output.layers.back(), output.hidden));
  return output;
}

}  // namespace melete::musiclm
