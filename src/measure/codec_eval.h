// How good a codec is on recordings: figures over the number of its quantizers, beside Opus on the same
// sounds.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "io/base/png.h"
#include "losses/sound_figures.h"
#include "roles/codec.h"

namespace melete {

struct EvalRecording {
  std::string name;
  at::Tensor wave;  // [1, samples] at the codec's rate, whole frames
};

// One way of coding, over all recordings.
struct RatePoint {
  std::string name;  // "3 quantizers", "Opus 12"
  bool opus = false;
  double bits_per_second = 0;
  std::vector<SoundFigure> figures;           // means over recordings, always the same ones in the same order
  double encode_speed = 0, decode_speed = 0;  // times real time

  double figure(const std::string& figure_name) const;  // "mel_distance", "extended_stoi", ...
};

struct StageUse {
  double perplexity = 0, share = 0;  // of the codebook
};

struct CodecEval {
  std::vector<RatePoint> points;  // by number of quantizers, then Opus by rate
  std::vector<StageUse> stages;   // group by group
};

using OnDecoded =
    std::function<void(size_t recording, const at::Tensor& wave)>;  // [1, samples], all quantizers
using OnEval = std::function<void(const std::string& what, int64_t done, int64_t of)>;

// Numbers of quantizers to measure: all up to 8, else powers of two and the last.
std::vector<int64_t> quantizer_counts(int64_t quantizers);

// quantizers: of every group.
RatePoint eval_codec(const Codec& codec, const std::vector<EvalRecording>& recordings, int64_t quantizers,
                     const OnDecoded& on_decoded = {}, std::vector<StageUse>* stages = nullptr);
RatePoint eval_opus(const std::vector<EvalRecording>& recordings, int rate_hz, int bits_per_second);

// Everything: the codec with each number of quantizers, and Opus at 6, 12 and 24 kbit/s.
CodecEval eval_codec_beside_opus(const Codec& codec, const std::vector<EvalRecording>& recordings,
                                 const OnDecoded& on_decoded = {}, const OnEval& on_step = {});

// figure: by name, as in SoundFigure
Image rate_quality_plot(const CodecEval& eval, const std::string& figure);

}  // namespace melete
