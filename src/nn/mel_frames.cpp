#include "nn/mel_frames.h"

#include "config/schema.h"
#include "core/autocast.h"
#include "core/base/error.h"
#include "core/device.h"
#include "nn/identity.h"

namespace melete {

namespace {

constexpr double kQuietestPower = 1e-10;

// Half of what a window reaches beyond its hop, mirrored at both ends; then frames stand side by side.
at::Tensor mirror_ends(const at::Tensor& audio, int64_t by) {
  const int64_t both[] = {by, by};
  return at::reflection_pad1d(audio, both);
}

}  // namespace

void describe(Schema& s, MelFramesConfig& c) {
  s.option("rate_hz", c.rate_hz, "of the audio").at_least(1000).unit("Hz");
  s.option("mels", c.mels, "bands").at_least(1);
  s.option("n_fft", c.n_fft, "of a spectrum").at_least(2).unit("samples");
  s.option("window", c.window, "of a spectrum, Hann").at_least(2).unit("samples");
  s.option("hop", c.hop, "between frames").at_least(1).unit("samples");
  s.option("high_hz", c.high_hz, "where the highest band ends; 0: half the rate").at_least(0).unit("Hz");
  s.option("edges", c.edges,
           "centre: frames are centred on multiples of the hop; same: each stands for a hop")
      .one_of({"centre", "same"});
  s.option("values", c.values, "scale of the bands").one_of({"log_magnitude", "decibels", "power"});
  s.option("floor", c.floor, "of log_magnitude: smaller magnitudes count as this").at_least(1e-12);
}

nlohmann::ordered_json identifying_settings(const MelFramesConfig& config) {
  MelFramesConfig settings = config, plain;
  return identifying_settings(schema_of(settings).json(), schema_of(plain).json(), {"floor"});
}

MelFrames::MelFrames(const MelFramesConfig& config) : config_(config) {
  require(config.window <= config.n_fft, "[mel] expected a window of at most n_fft {}, got {}", config.n_fft,
          config.window);
  require(config.hop <= config.window, "[mel] expected a hop of at most the window {}, got {}", config.window,
          config.hop);
  const double half = static_cast<double>(config.rate_hz / 2);
  require(config.high_hz <= half, "[mel] expected high_hz of at most {}, got {}", half, config.high_hz);
  filters_ =
      mel_filters(config.n_fft, config.mels, config.rate_hz, config.high_hz > 0 ? config.high_hz : half);
}

int64_t MelFrames::frames(int64_t samples) const {
  if (config_.edges == "centre") return samples / config_.hop + 1;
  return (samples + 2 * ((config_.window - config_.hop) / 2) - config_.n_fft) / config_.hop + 1;
}

at::Tensor MelFrames::operator()(const at::Tensor& audio) const {
  const StftConfig stft_config{config_.n_fft, config_.hop, config_.window};
  const bool centred = config_.edges == "centre";
  const at::Tensor spectrum =
      centred ? stft(audio, stft_config)
              : stft(mirror_ends(audio, (config_.window - config_.hop) / 2), stft_config, StftEnds::cut);
  const at::Tensor power = at::view_as_real(spectrum).square().sum(-1).transpose(1, 2);
  const bool magnitudes = config_.values == "log_magnitude";
  const AutocastScope float32(audio.device().type(), false);
  const at::Tensor bands = at::matmul(magnitudes ? power.sqrt() : power, sent_to(audio.device(), filters_));
  if (magnitudes) return bands.clamp_min(config_.floor).log();
  return config_.values == "power" ? bands : 10 * bands.clamp_min(kQuietestPower).log10();
}

}  // namespace melete
