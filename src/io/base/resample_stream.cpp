#include "io/base/resample_stream.h"

#include <algorithm>

namespace melete {

std::vector<float> ResampleStream::push(std::span<const float> samples) {
  received_ += static_cast<int64_t>(samples.size());
  if (resampler_.identity()) return {samples.begin(), samples.end()};
  held_.insert(held_.end(), samples.begin(), samples.end());
  // The last outputs whose window ends within what is here; windows are a few dozen frames wide.
  int64_t until = resampler_.output_frames(received_);
  while (until > emitted_ && resampler_.source_range(until - 1, until).end > received_) --until;
  return emit(until);
}

std::vector<float> ResampleStream::finish() {
  return resampler_.identity() ? std::vector<float>{} : emit(resampler_.output_frames(received_));
}

std::vector<float> ResampleStream::emit(int64_t until) {
  std::vector<float> out(static_cast<size_t>(std::max<int64_t>(until - emitted_, 0)));
  if (out.empty()) return out;
  resampler_.run(held_, held_begin_, emitted_, out);
  emitted_ = until;
  const int64_t needed =
      std::clamp(resampler_.source_range(emitted_, emitted_ + 1).begin - 64, held_begin_, received_);
  held_.erase(held_.begin(), held_.begin() + (needed - held_begin_));
  held_begin_ = needed;
  return out;
}

}  // namespace melete
