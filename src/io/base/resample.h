// Resampling by windowed sinc with the arithmetic of torchaudio's `resample` (Hann window), in polyphase
// form: any stretch of the output can be computed alone and equals the same stretch of the whole file's
// result, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace melete {

class Resampler {
 public:
  Resampler(int from_hz, int to_hz, int lowpass_width = 6, double rolloff = 0.99);

  int64_t output_frames(int64_t input_frames) const;  // ceil(input * to / from)

  // Input frames that outputs [out_begin, out_end) depend on. May reach outside the file, where the signal is
  // zero.
  struct Range {
    int64_t begin, end;
  };
  Range source_range(int64_t out_begin, int64_t out_end) const;

  // Computes out.size() output frames from frame `out_begin` on; `source` holds input frames from
  // `source_begin` on, and everything outside of it counts as zero.
  void run(std::span<const float> source, int64_t source_begin, int64_t out_begin,
           std::span<float> out) const;

  // The whole signal at once.
  std::vector<float> run(std::span<const float> source) const;

  bool identity() const { return from_ == to_; }

 private:
  int64_t from_, to_;  // rates divided by their greatest common divisor
  struct Phase {
    int64_t offset;     // of the first tap, from the block's first input frame
    int64_t tap_count;  // before padding with zeros
  };
  std::vector<Phase> phases_;  // one for each of the to_ output positions that share an input frame
  std::vector<float> taps_;    // phases x tap_count_, zeros at the end of a phase that needs fewer
  int64_t tap_count_ = 0;
};

}  // namespace melete
