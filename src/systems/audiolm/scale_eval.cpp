#include "systems/audiolm/scale_eval.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/base/synth_music.h"
#include "data/base/synth_score.h"
#include "io/resample_audio.h"
#include "losses/beat.h"
#include "losses/tonality.h"

namespace melete {

namespace {

constexpr int64_t kBatch = 16;

bool all_pitched(const Score& score) {
  return std::none_of(score.parts.begin(), score.parts.end(),
                      [](const Part& part) { return part.role == Role::rhythm; });
}

// columns: of each piece, the figure of every sound with it, [sounds].
FitToPiece fit_of(const std::vector<at::Tensor>& columns) {
  const auto count = static_cast<double>(columns.size());
  const at::Tensor figures = at::stack(columns, 1).to(at::kDouble);  // [sounds, pieces]
  const at::Tensor own = figures.diagonal(), others = (figures.sum(1) - own) / (count - 1);
  return {own.mean().item<double>(), others.mean().item<double>(),
          (own - others).std().item<double>() / std::sqrt(count)};
}

}  // namespace

std::vector<TonalPiece> tonal_pieces(uint64_t seed, int64_t count, int64_t rate_hz, double seconds) {
  std::vector<TonalPiece> pieces;
  for (int64_t index = 0; static_cast<int64_t>(pieces.size()) < count; ++index) {
    const Score score = compose(seed, index, seconds);
    if (!score.has_pitch() || !all_pitched(score)) continue;
    const MusicPiece piece = synth_music_piece(seed, index, static_cast<int>(rate_hz), seconds);
    pieces.push_back(
        {at::tensor(piece.samples, at::kFloat), pitch_classes(score), 60 / score.beats_per_minute});
  }
  return pieces;
}

ScaleFigure scale_figure(const std::string& what, const at::Tensor& waves, int64_t rate_hz,
                         const std::vector<TonalPiece>& pieces) {
  const auto count = static_cast<int64_t>(pieces.size());
  require(count >= 2 && waves.size(0) == count,
          "[scale] expected a sound for each of at least 2 pieces, got {} for {}", waves.size(0), count);
  const at::Tensor classes = chroma(waves, rate_hz), onsets = onset_strength(waves, rate_hz);
  std::vector<at::Tensor> in_scale, on_beat;
  for (const TonalPiece& piece : pieces) {
    in_scale.push_back(in_scale_share(classes, piece.scale));
    on_beat.push_back(beat_strength(onsets, piece.beat_seconds));
  }
  return {what, fit_of(in_scale), fit_of(on_beat)};
}

std::vector<ScaleFigure> eval_scale(AudioLm& model, const std::vector<TonalPiece>& pieces, int64_t rate_hz,
                                    double prompt_seconds, AudioLmRequest request) {
  const int64_t codec_rate = model.codec->rate_hz(), frame = model.codec->samples_per_frame();
  const auto samples = [](double seconds, int64_t rate) {
    return static_cast<int64_t>(std::lround(seconds * static_cast<double>(rate)));
  };
  // Whole frames, so that prompt and continuation meet at the same sample for all.
  const int64_t prompt = samples(prompt_seconds, codec_rate) / frame * frame;
  const int64_t length = samples(request.seconds, codec_rate) / frame * frame;
  require(prompt > 0 && length > 0,
          "[scale] a prompt of {} s and a continuation of {} s are less than a frame", prompt_seconds,
          request.seconds);
  std::vector<at::Tensor> whole;
  for (const TonalPiece& piece : pieces) {
    const at::Tensor wave = resample_audio(piece.wave.unsqueeze(0), rate_hz, codec_rate);
    require(wave.size(1) >= prompt + length, "[scale] pieces must last {} s",
            prompt_seconds + request.seconds);
    whole.push_back(wave.narrow(1, 0, prompt + length));
  }
  const at::Tensor recorded = at::cat(whole);
  std::vector<at::Tensor> coded, made;
  const auto count = static_cast<int64_t>(pieces.size());
  for (int64_t from = 0; from < count; from += kBatch) {
    const at::Tensor some = recorded.narrow(0, from, std::min(kBatch, count - from));
    coded.push_back(model.codec->decode(model.codec->encode(some)).narrow(1, prompt, length));
    request.prompt = some.narrow(1, 0, prompt);
    request.prompt_rate_hz = codec_rate;
    request.batch = some.size(0);
    request.may_end = false;
    for (const at::Tensor& wave : generate(model, request).waves) {
      require(wave.size(0) >= prompt + length, "[scale] a continuation of {} samples, expected {}",
              wave.size(0) - prompt, length);
      made.push_back(wave.narrow(0, prompt, length));
    }
    ++request.seed;
  }
  return {scale_figure("the pieces themselves", recorded.narrow(1, prompt, length), codec_rate, pieces),
          scale_figure("through the codec", at::cat(coded), codec_rate, pieces),
          scale_figure("continuations", at::stack(made), codec_rate, pieces)};
}

}  // namespace melete
