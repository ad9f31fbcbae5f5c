#include "nn/semitones.h"

#include <cmath>

#include "core/base/error.h"
#include "core/device.h"
#include "nn/windows.h"

namespace melete {

namespace {

constexpr double kQuiet = 1e-3;  // amplitudes that add up to less than this count as silence, not as music

}  // namespace

void describe(Schema& schema, SemitonesConfig& config) {
  schema.option("sample_rate_hz", config.sample_rate_hz, "of the audio").at_least(1000).unit("Hz");
  schema.option("hop", config.hop, "between frames").at_least(1).unit("samples");
  schema.option("window", config.window, "of a frame").at_least(2).unit("samples");
  schema.option("lowest_note", config.lowest_note, "MIDI's number of it; 45 is A at 110 Hz")
      .at_least(0)
      .at_most(127);
  schema.option("octaves", config.octaves, "from the lowest note up").at_least(1).at_most(10);
  schema.option("fold", config.fold, "into 12 pitch classes, whatever the octave");
}

Semitones::Semitones(const SemitonesConfig& config) : config_(config) {
  require(config.window >= config.hop, "[semitones] expected a window of at least the hop {}, got {}",
          config.hop, config.window);
  const at::Tensor hz = frequencies_hz();
  const double highest = hz[-1].item<double>();
  require(2 * highest < static_cast<double>(config.sample_rate_hz),
          "[semitones] {} octaves from note {} on reach {:.0f} Hz, more than half the rate of {} Hz; try "
          "fewer octaves",
          config.octaves, config.lowest_note, highest, config.sample_rate_hz);
  const at::Tensor phase = at::arange(config.window, at::kFloat).unsqueeze(1) *
                           (hz * (2 * M_PI / static_cast<double>(config.sample_rate_hz))).unsqueeze(0);
  const at::Tensor window = at::hann_window(config.window, at::kFloat);
  // A tone of amplitude a measures a.
  waves_ = at::cat({at::cos(phase), at::sin(phase)}, 1) * (window * (2 / window.sum())).unsqueeze(1);
}

at::Tensor Semitones::frequencies_hz() const {
  const at::Tensor note =
      at::arange(12 * config_.octaves, at::kFloat) + static_cast<double>(config_.lowest_note - 69);
  return 440 * at::pow(2, note / 12);
}

at::Tensor Semitones::operator()(const at::Tensor& audio) const {
  const at::Tensor parts =
      at::matmul(centred_windows(audio, config_.window, config_.hop), sent_to(audio.device(), waves_));
  const auto halves = parts.chunk(2, -1);
  const at::Tensor amplitude = at::hypot(halves[0], halves[1]);  // [batch, frames, semitones]
  const at::Tensor level = amplitude.sum(-1, true).clamp_min(kQuiet);
  const at::Tensor loudness = (amplitude / level).sqrt();  // squares of a row add up to 1
  if (!config_.fold) return loudness;
  const at::Tensor classes = loudness.square().unflatten(-1, {config_.octaves, 12}).sum(-2);
  // The first column is the class of the lowest note.
  return classes / classes.norm(2, -1, true).clamp_min(kQuiet);
}

}  // namespace melete
