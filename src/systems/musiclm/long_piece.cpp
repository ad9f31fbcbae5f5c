#include "systems/musiclm/long_piece.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete::musiclm {

namespace {

constexpr double kSeamSeconds = 0.01;  // over which one window becomes the next

int64_t samples_of(double seconds, int64_t rate_hz) {
  return static_cast<int64_t>(std::llround(seconds * static_cast<double>(rate_hz)));
}

// `more` begins `shared` samples before the end of `piece`: both [samples]
at::Tensor joined(const at::Tensor& piece, const at::Tensor& more, int64_t shared, int64_t rate_hz) {
  const int64_t seam = std::min({samples_of(kSeamSeconds, rate_hz), shared, piece.size(0)});
  const int64_t kept = piece.size(0) - seam;
  const at::Tensor share = at::linspace(0, 1, seam);
  const at::Tensor between = at::lerp(piece.slice(0, kept), more.slice(0, shared - seam, shared), share);
  return at::cat({piece.slice(0, 0, kept), between, more.slice(0, shared)});
}

}  // namespace

std::vector<PieceWindow> plan_windows(double seconds, const std::string& text,
                                      const LongPieceConfig& config) {
  require(config.window_seconds == 0 || config.overlap_seconds < config.window_seconds,
          "[musiclm] windows of {} s cannot overlap by {} s; try a smaller --overlap_seconds",
          config.window_seconds, config.overlap_seconds);
  std::vector<PieceWindow> windows;
  double at = 0;
  while (at < seconds - 1e-9) {
    // The first window has nothing before it, so all of it is new.
    const double room = config.window_seconds == 0 ? seconds
                        : at == 0                  ? config.window_seconds
                                                   : config.window_seconds - config.overlap_seconds;
    double end = std::min(seconds, at + room);
    for (const StoryPart& part : config.story)
      if (part.from_seconds > at + 1e-9) end = std::min(end, part.from_seconds);
    windows.push_back({at, end - at, config.story.empty() ? text : part_at(config.story, at).text});
    at = end;
  }
  return windows;
}

MusicResult generate_long(MusicLm& model, const MusicRequest& request, const LongPieceConfig& config) {
  const at::NoGradGuard no_grad;
  const std::vector<PieceWindow> windows = plan_windows(request.audiolm.seconds, request.text, config);
  require(!windows.empty(), "[musiclm] expected a piece longer than 0 seconds");
  if (windows.size() == 1) {
    MusicRequest whole = request;
    whole.text = windows.front().text;
    return generate(model, whole);
  }
  require(!request.audiolm.may_end,
          "[musiclm] a piece of {} windows has the length that was asked for; leave --until_end out",
          windows.size());
  const Codec& codec = *model.audiolm.codec;
  const int64_t rate_hz = codec.rate_hz(), frame = codec.samples_per_frame();
  // Whole frames, so that a window's first new sample is the one that follows the piece.
  const int64_t overlap = (samples_of(config.overlap_seconds, rate_hz) + frame - 1) / frame * frame;
  const auto frames_until = [&](double seconds) {
    return static_cast<int64_t>(std::ceil(seconds * codec.frames_per_second() - 1e-6));
  };
  MusicResult result;
  std::vector<at::Tensor> waves;  // so far, a row a piece
  int64_t given = 0;              // samples of the request's prompt, with which they begin
  result.scores = at::zeros({request.samples}, at::kFloat);
  for (size_t i = 0; i < windows.size(); ++i) {
    const double begin = windows[i].begin_seconds, seconds = windows[i].seconds;
    const int64_t frames = frames_until(begin + seconds) - frames_until(begin);
    if (frames == 0) continue;  // a part of a story that is shorter than a frame
    MusicRequest part = request;
    part.text = windows[i].text;
    part.audiolm.seconds = static_cast<double>(frames) / codec.frames_per_second();
    if (!waves.empty()) {
      part.audiolm.seed = random_key(request.audiolm.seed, "window", {static_cast<uint64_t>(i)});
      std::vector<at::Tensor> ends;
      for (const at::Tensor& wave : waves)
        ends.push_back(wave.slice(0, std::max<int64_t>(0, wave.size(0) - overlap)));
      part.audiolm.prompt = at::stack(ends);
      part.audiolm.prompt_rate_hz = rate_hz;
    }
    if (request.audiolm.progress)
      part.audiolm.progress = [&](const std::string& stage, int64_t done, int64_t of) {
        request.audiolm.progress(fmt::format("{} {}/{}", stage, i + 1, windows.size()), done, of);
      };
    MusicResult made = generate(model, part);
    result.scores += made.scores * (seconds / request.audiolm.seconds);
    const int64_t shared = made.audiolm.prompt_samples;
    if (waves.empty()) {
      result.codes = made.codes;
      given = shared;
    }
    for (size_t row = 0; row < waves.size(); ++row)
      made.audiolm.waves[row] = joined(waves[row], made.audiolm.waves[row], shared, rate_hz);
    waves = made.audiolm.waves;
    result.audiolm = std::move(made.audiolm);
  }
  result.audiolm.prompt_samples = given;
  result.best = result.scores.argmax().item<int64_t>();
  return result;
}

}  // namespace melete::musiclm
