#include "measure/codec_eval.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "core/base/error.h"
#include "io/base/opus.h"
#include "losses/quality.h"
#include "run/pictures.h"

namespace melete {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// EvalSums of the figures, means at the end.
struct EvalSums {
  RatePoint point;
  double sound = 0, encode = 0, decode = 0, bits = 0;

  FigureMeans figures;

  void add(const at::Tensor& real, const at::Tensor& fake, int rate_hz) {
    figures.add(sound_figures(real, fake, rate_hz));
    sound += static_cast<double>(real.size(-1)) / rate_hz;
  }
  RatePoint mean() {
    point.figures = figures.means();
    point.encode_speed = sound / std::max(encode, 1e-9);
    point.decode_speed = sound / std::max(decode, 1e-9);
    point.bits_per_second = bits / std::max(sound, 1e-9);
    return point;
  }
};

// In one piece. wave [1, samples] -> [frames, groups, codes of a group]
at::Tensor codes_of(const Codec& codec, const at::Tensor& wave, double seconds) {
  const auto encoder = codec.sound_to_codes(seconds);
  const at::Tensor first = encoder->push({wave.data_ptr<float>(), static_cast<size_t>(wave.numel())});
  return at::cat({first, encoder->finish()});
}

// -> [1, samples]
at::Tensor sound_of(const Codec& codec, const at::Tensor& codes, double seconds, int64_t samples) {
  const auto decoder = codec.codes_to_sound(seconds);
  std::vector<float> sound = decoder->push(codes);
  const std::vector<float> rest = decoder->finish();
  sound.insert(sound.end(), rest.begin(), rest.end());
  return at::tensor(sound, at::kFloat).unsqueeze(0).narrow(1, 0, samples);
}

}  // namespace

double RatePoint::figure(const std::string& figure_name) const {
  for (const SoundFigure& known : figures)
    if (known.name == figure_name) return known.value;
  fail("[codec eval] there is no figure `{}`", figure_name);
}

std::vector<int64_t> quantizer_counts(int64_t quantizers) {
  std::vector<int64_t> counts;
  for (int64_t n = 1; n < quantizers; quantizers <= 8 ? ++n : n *= 2) counts.push_back(n);
  counts.push_back(quantizers);
  return counts;
}

RatePoint eval_codec(const Codec& codec, const std::vector<EvalRecording>& recordings, int64_t quantizers,
                     const OnDecoded& on_decoded, std::vector<StageUse>* stages) {
  const at::NoGradGuard no_grad;
  const int rate_hz = static_cast<int>(codec.rate_hz());
  const double bits_per_second = codec.frames_per_second() *
                                 static_cast<double>(codec.groups() * quantizers) *
                                 std::log2(static_cast<double>(codec.codebook_size()));
  EvalSums sums;
  sums.point.name = fmt::format("{} quantizer{}", quantizers, quantizers == 1 ? "" : "s");
  std::vector<at::Tensor> all_codes;
  for (size_t i = 0; i < recordings.size(); ++i) {
    const at::Tensor real = recordings[i].wave.contiguous();
    const double seconds = static_cast<double>(real.size(-1)) / rate_hz;
    auto begin = Clock::now();
    const at::Tensor codes = codes_of(codec, real, seconds);  // [frames, groups, codes of a group]
    sums.encode += since(begin);
    begin = Clock::now();
    const at::Tensor fake = sound_of(codec, codes.narrow(2, 0, quantizers), seconds, real.size(-1));
    sums.decode += since(begin);
    sums.add(real, fake, rate_hz);
    sums.bits += bits_per_second * seconds;
    if (on_decoded) on_decoded(i, fake);
    if (stages) all_codes.push_back(codes);
  }
  if (stages) {
    const at::Tensor chosen = at::cat(all_codes).permute({1, 2, 0}).flatten(0, 1);
    for (int64_t stage = 0; stage < chosen.size(0); ++stage) {
      const CodeUse use = code_use(chosen[stage], codec.codebook_size());
      stages->push_back({use.perplexity.item<double>(), use.share.item<double>()});
    }
  }
  return sums.mean();
}

RatePoint eval_opus(const std::vector<EvalRecording>& recordings, int rate_hz, int bits_per_second) {
  EvalSums sums;
  sums.point.name = fmt::format("Opus {}", bits_per_second / 1000);
  sums.point.opus = true;
  for (const EvalRecording& recording : recordings) {
    const at::Tensor real = recording.wave.contiguous();
    OpusResult result =
        through_opus({real.data_ptr<float>(), static_cast<size_t>(real.numel())}, rate_hz, bits_per_second);
    const at::Tensor fake = at::from_blob(result.samples.data(), real.sizes(), at::kFloat);
    sums.encode += result.encode_seconds;
    sums.decode += result.decode_seconds;
    sums.bits += result.bits_per_second * static_cast<double>(real.size(-1)) / rate_hz;
    sums.add(real, fake, rate_hz);
  }
  return sums.mean();
}

CodecEval eval_codec_beside_opus(const Codec& codec, const std::vector<EvalRecording>& recordings,
                                 const OnDecoded& on_decoded, const OnEval& on_step) {
  require(!recordings.empty(), "[codec eval] there are no recordings");
  CodecEval eval;
  const auto counts = quantizer_counts(codec.codes_of_a_group());
  constexpr int kOpusRates[] = {6000, 12000, 24000};
  const auto steps = static_cast<int64_t>(counts.size() + std::size(kOpusRates));
  const auto step = [&](const std::string& what) {
    if (on_step) on_step(what, static_cast<int64_t>(eval.points.size()), steps);
  };
  for (const int64_t count : counts) {
    step(fmt::format("{} quantizers", count));
    const bool last = count == counts.back();
    eval.points.push_back(
        eval_codec(codec, recordings, count, last ? on_decoded : OnDecoded{}, last ? &eval.stages : nullptr));
  }
  for (const int rate : kOpusRates) {
    step(fmt::format("Opus {}", rate / 1000));
    eval.points.push_back(eval_opus(recordings, static_cast<int>(codec.rate_hz()), rate));
  }
  step("done");
  return eval;
}

Image rate_quality_plot(const CodecEval& eval, const std::string& figure) {
  std::string label = figure;
  for (const SoundFigure& known : eval.points.front().figures)
    if (known.name == figure)
      label = fmt::format("{} ({} is better)", known.label, known.higher_is_better ? "higher" : "lower");
  Series codec{"this codec", {}, {}, true, true, {}}, opus{"Opus", {}, {}, true, true, {}};
  for (const RatePoint& point : eval.points) {
    Series& series = point.opus ? opus : codec;
    series.x.push_back(point.bits_per_second / 1000);
    series.y.push_back(point.figure(figure));
    series.labels.push_back(point.name.substr(0, point.opus ? std::string::npos : point.name.find(' ')));
  }
  PlotStyle style;
  style.title = "quality over bitrate";
  style.x_label = "kbit/s";
  style.y_label = label;
  style.log_x = true;
  return plot(style, {codec, opus});
}

}  // namespace melete
