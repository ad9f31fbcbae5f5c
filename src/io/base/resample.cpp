#include "io/base/resample.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr int64_t kLanes = 8;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Always in the same order, so that a frame's value does not depend on where its segment begins.
float dot(const float* a, const float* b, int64_t count) {
  Lanes sum = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const Lanes x = *reinterpret_cast<const Lanes*>(a + i), y = *reinterpret_cast<const Lanes*>(b + i);
    sum += x * y;
  }
  float total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

}  // namespace

Resampler::Resampler(int from_hz, int to_hz, int lowpass_width, double rolloff) {
  require(from_hz > 0 && to_hz > 0, "[resample] expected rates above 0 Hz, got {} -> {}", from_hz, to_hz);
  require(lowpass_width > 0 && rolloff > 0 && rolloff <= 1,
          "[resample] expected a filter width above 0 and a rolloff in (0, 1], got {} and {}", lowpass_width,
          rolloff);
  const int64_t common = std::gcd(from_hz, to_hz);
  from_ = from_hz / common;
  to_ = to_hz / common;
  if (identity()) return;

  // torchaudio builds its filter in float32; the same steps in the same precision give the same taps.
  const double cutoff = static_cast<double>(std::min(from_, to_)) * rolloff;
  const auto width = static_cast<int64_t>(std::ceil(lowpass_width * static_cast<double>(from_) / cutoff));
  const auto limit = static_cast<float>(lowpass_width);
  const auto pi = std::numbers::pi_v<float>;
  const auto scale = static_cast<float>(cutoff / static_cast<double>(from_));
  const auto tap = [&](int64_t phase, int64_t input) -> float {
    const float position = static_cast<float>(-phase) / static_cast<float>(to_) +
                           static_cast<float>(input) / static_cast<float>(from_);
    const float t = std::clamp(position * static_cast<float>(cutoff), -limit, limit);
    if (t == limit || t == -limit) return 0;
    const float cosine = std::cos(t * pi / limit / 2.0f);
    const float angle = t * pi;
    return (angle == 0 ? 1.0f : std::sin(angle) / angle) * (cosine * cosine * scale);
  };

  std::vector<std::vector<float>> taps(static_cast<size_t>(to_));
  phases_.resize(static_cast<size_t>(to_));
  for (int64_t phase = 0; phase < to_; ++phase) {
    // The window is open for |input / from - phase / to| * cutoff < lowpass_width; one more on each side for
    // rounding.
    const double centre = static_cast<double>(phase * from_) / static_cast<double>(to_);
    int64_t first = std::max(-width, static_cast<int64_t>(std::floor(centre)) - width - 1);
    int64_t last = std::min(width + from_ - 1, static_cast<int64_t>(std::ceil(centre)) + width + 1);
    while (first < last && tap(phase, first) == 0) ++first;
    while (last > first && tap(phase, last) == 0) --last;
    auto& row = taps[static_cast<size_t>(phase)];
    for (int64_t input = first; input <= last; ++input) row.push_back(tap(phase, input));
    phases_[static_cast<size_t>(phase)] = {first, static_cast<int64_t>(row.size())};
    tap_count_ = std::max(tap_count_, static_cast<int64_t>(row.size()));
  }
  tap_count_ = (tap_count_ + kLanes - 1) / kLanes * kLanes;
  taps_.assign(static_cast<size_t>(to_ * tap_count_), 0.0f);
  for (int64_t phase = 0; phase < to_; ++phase)
    std::ranges::copy(taps[static_cast<size_t>(phase)], taps_.begin() + phase * tap_count_);
}

int64_t Resampler::output_frames(int64_t input_frames) const {
  require(input_frames >= 0, "[resample] expected a length of 0 or more, got {}", input_frames);
  return (input_frames * to_ + from_ - 1) / from_;
}

Resampler::Range Resampler::source_range(int64_t out_begin, int64_t out_end) const {
  require(out_begin <= out_end, "[resample] expected begin <= end, got {} > {}", out_begin, out_end);
  if (identity() || out_begin == out_end) {
    const int64_t begin = floor_divide(out_begin * from_, to_);
    return {begin, begin + (out_end - out_begin)};
  }
  // Windows move forward with the output, but a shorter phase may begin a frame before its left neighbour.
  Range range{INT64_MAX, INT64_MIN};
  const auto widen = [&](int64_t out) {
    const int64_t block = floor_divide(out, to_);
    const Phase& phase = phases_[static_cast<size_t>(out - block * to_)];
    range.begin = std::min(range.begin, block * from_ + phase.offset);
    range.end = std::max(range.end, block * from_ + phase.offset + phase.tap_count);
  };
  const int64_t near = std::min(out_end - out_begin, to_);
  for (int64_t i = 0; i < near; ++i) {
    widen(out_begin + i);
    widen(out_end - 1 - i);
  }
  return range;
}

void Resampler::run(std::span<const float> source, int64_t source_begin, int64_t out_begin,
                    std::span<float> out) const {
  const auto count = static_cast<int64_t>(out.size());
  const int64_t source_end = source_begin + static_cast<int64_t>(source.size());
  if (count == 0) return;
  if (identity()) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = out_begin + i;
      out[static_cast<size_t>(i)] =
          at >= source_begin && at < source_end ? source[static_cast<size_t>(at - source_begin)] : 0.0f;
    }
    return;
  }
  std::vector<float> edge(static_cast<size_t>(tap_count_));
  int64_t block = floor_divide(out_begin, to_);
  int64_t phase = out_begin - block * to_;
  for (int64_t i = 0; i < count; ++i) {
    const float* taps = taps_.data() + phase * tap_count_;
    const int64_t begin = block * from_ + phases_[static_cast<size_t>(phase)].offset;
    if (begin >= source_begin && begin + tap_count_ <= source_end) {
      out[static_cast<size_t>(i)] = dot(source.data() + (begin - source_begin), taps, tap_count_);
    } else {
      for (int64_t k = 0; k < tap_count_; ++k) {
        const int64_t at = begin + k;
        edge[static_cast<size_t>(k)] =
            at >= source_begin && at < source_end ? source[static_cast<size_t>(at - source_begin)] : 0.0f;
      }
      out[static_cast<size_t>(i)] = dot(edge.data(), taps, tap_count_);
    }
    if (++phase == to_) {
      phase = 0;
      ++block;
    }
  }
}

std::vector<float> Resampler::run(std::span<const float> source) const {
  std::vector<float> out(static_cast<size_t>(output_frames(static_cast<int64_t>(source.size()))));
  run(source, 0, 0, out);
  return out;
}

}  // namespace melete
