#include "systems/musiclm/spectrogram.h"

#include "config/schema.h"
#include "core/base/error.h"
#include "core/device.h"
#include "nn/spectrum.h"

namespace melete::musiclm {

namespace {

// Every row with its own edges before its first and after its last sample.
// audio [batch, samples], lengths [batch] -> [batch, edge + samples + edge]
at::Tensor with_edges(const at::Tensor& audio, const at::Tensor& lengths, int64_t edge,
                      const std::string& edges) {
  const int64_t batch = audio.size(0), samples = audio.size(1);
  const at::Tensor length = lengths.unsqueeze(1);
  const at::Tensor place = at::arange(-edge, samples + edge, lengths.options()).unsqueeze(0);
  at::Tensor from;  // the sample that each place of each row shows
  if (edges == "reflect") {
    from = at::where(place.lt(length), place.abs(), 2 * (length - 1) - place);
  } else if (edges == "replicate") {
    from = at::minimum(place.clamp_min(0), length - 1);
  } else if (edges == "circular") {
    from = at::remainder(place, length);
  } else {
    from = place.expand({batch, place.size(1)});
  }
  const at::Tensor there = from.ge(0).logical_and(from.lt(length));
  return audio.gather(1, from.clamp(0, samples - 1)).masked_fill(there.logical_not(), 0);
}

void check_length(int64_t shortest, const SpectrogramConfig& config) {
  const int64_t edge = config.centred ? config.n_fft / 2 : 0, padded = shortest + 2 * config.padding;
  const bool reflected = config.centred && config.edges == "reflect";
  require(reflected ? padded > edge : config.frames(shortest) > 0,
          "[spectrogram] {} samples are too short for n_fft {}; use longer recordings or a smaller n_fft",
          shortest, config.n_fft);
}

}  // namespace

int64_t SpectrogramConfig::frames(int64_t samples) const {
  const int64_t wide = samples + 2 * padding + (centred ? n_fft / 2 * 2 : 0);
  return samples <= 0 || wide < n_fft ? 0 : (wide - n_fft) / hop_samples() + 1;
}

void describe(Schema& schema, SpectrogramConfig& config) {
  schema.option("n_fft", config.n_fft, "samples of a frame").at_least(2);
  schema.option("window", config.window, "samples of the Hann window inside a frame").at_least(2);
  schema.option("hop", config.hop, "samples from frame to frame; 0: half the window").at_least(0);
  schema.option("power", config.power, "of the magnitudes: 2 for energy, 1 for magnitude").at_least(0);
  schema.option("padding", config.padding, "zero samples before and after a recording").at_least(0);
  schema.option("centred", config.centred, "frames are centred on their sample, else they begin there");
  schema.option("edges", config.edges, "what centred frames see beyond the ends of a recording")
      .one_of({"reflect", "constant", "replicate", "circular"});
}

at::Tensor power_spectrogram(const at::Tensor& audio, const at::Tensor& given,
                             const SpectrogramConfig& config) {
  require(audio.dim() == 2, "[spectrogram] expected audio [batch, samples], got {} dimensions", audio.dim());
  require(config.window <= config.n_fft, "[spectrogram] the window of {} samples exceeds n_fft {}",
          config.window, config.n_fft);
  const int64_t samples = audio.size(1);
  const bool whole = !given.defined();
  const at::Tensor known =
      whole ? at::full({audio.size(0)}, samples, at::kLong) : given.to(at::kCPU, at::kLong);
  const at::Tensor lengths = sent_to(audio.device(), known);
  require(
      whole || (known.dim() == 1 && known.size(0) == audio.size(0) && known.max().item<int64_t>() <= samples),
      "[spectrogram] expected {} lengths of at most {} samples", audio.size(0), samples);
  check_length(whole ? samples : known.min().item<int64_t>(), config);
  // Padding belongs to the recording, so that its edges are mirrored zeros.
  at::Tensor padded = audio.to(at::kFloat);
  if (config.padding > 0) {
    if (!whole) {
      const at::Tensor beyond = at::arange(samples, lengths.options()).unsqueeze(0).ge(lengths.unsqueeze(1));
      padded = padded.masked_fill(beyond, 0);
    }
    padded = at::constant_pad_nd(padded, {config.padding, config.padding});
  }
  // A place beyond the end of a row is seen by no frame that counts, but must not hold what was there before.
  const at::Tensor rows =
      with_edges(padded, lengths + 2 * config.padding, config.centred ? config.n_fft / 2 : 0, config.edges);
  const at::Tensor spectrum = stft(rows, {config.n_fft, config.hop_samples(), config.window}, StftEnds::cut);
  at::Tensor power = at::view_as_real(spectrum).square().sum(-1);  // [batch, bins, frames]
  if (config.power != 2) power = config.power == 1 ? power.sqrt() : power.pow(config.power / 2);
  if (whole) return power;
  std::vector<int64_t> frames;
  for (int64_t row = 0; row < known.size(0); ++row)
    frames.push_back(config.frames(known[row].item<int64_t>()));
  const at::Tensor last = sent_to(audio.device(), at::tensor(frames, at::kLong)).view({-1, 1, 1});
  return power.masked_fill(at::arange(power.size(2), lengths.options()).view({1, 1, -1}).ge(last), 0);
}

}  // namespace melete::musiclm
