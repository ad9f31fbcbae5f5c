// A codec and a semantic tokenizer for pitch alone, that are fitted in a second: with them AudioLM's three
// stages can be trained end to end, from sound to sound, in a test. A frame of an eighth of a second is the
// loudness of 48 semitones (nn/semitones.h); the codec keeps it in three stages of k-means and plays it
// back with one oscillator a semitone; the tokenizer folds it into 12 pitch classes first.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "pretrained/kmeans_fit.h"
#include "pretrained/kmeans_tokenizer.h"
#include "roles/codec.h"
#include "roles/semantic_tokenizer.h"

namespace melete::testing {

constexpr int64_t kTonalRate = 8000, kTonalHop = 1000;

inline SemitonesConfig tonal_frames(bool fold) {
  SemitonesConfig config;
  config.sample_rate_hz = kTonalRate;
  config.hop = kTonalHop;
  config.window = 4 * kTonalHop;
  config.fold = fold;
  return config;
}

inline at::Tensor centroids_of(const at::Tensor& rows, int64_t clusters) {
  KmeansConfig config;
  config.clusters = clusters;
  config.standardise = false;
  config.max_batches = 20;
  config.restarts = 1;
  return fit_kmeans([&](int64_t) { return rows; }, config).centroids.vectors;
}

inline std::shared_ptr<SemanticTokenizer> pitch_tokens(const at::Tensor& waves, int64_t clusters) {
  const SemitonesConfig config = tonal_frames(true);
  const at::Tensor centroids = centroids_of(Semitones(config)(waves).flatten(0, 1), clusters);
  return std::make_shared<KmeansTokenizer>(std::make_unique<SemitoneFeatures>(config),
                                           Centroids{centroids, {}, {}});
}

class PitchCodec final : public Codec {
 public:
  PitchCodec(const at::Tensor& waves, int64_t quantizers, int64_t codebook_size) : size_(codebook_size) {
    at::Tensor rest = semitones_(waves).flatten(0, 1);
    for (int64_t i = 0; i < quantizers; ++i) {
      tables_.push_back(centroids_of(rest, codebook_size));
      rest = rest - tables_.back().index_select(0, nearest_centroid(rest, tables_.back()));
    }
  }
  std::string kind() const override { return "pitch"; }
  int64_t rate_hz() const override { return kTonalRate; }
  int64_t samples_per_frame() const override { return kTonalHop; }
  int64_t codebook_size() const override { return size_; }
  int64_t quantizers() const override { return static_cast<int64_t>(tables_.size()); }
  const std::string& identity() const override { return identity_; }
  int64_t frames(int64_t samples) const override { return samples / kTonalHop; }

  at::Tensor encode(const at::Tensor& audio) const override {
    at::Tensor rest = semitones_(audio);
    std::vector<at::Tensor> codes;
    for (const at::Tensor& table : tables_) {
      codes.push_back(nearest_centroid(rest, table));
      rest = rest - at::embedding(table, codes.back());
    }
    return at::stack(codes, 2);
  }

  at::Tensor decode(const at::Tensor& codes) const override {
    at::Tensor frames = at::zeros({codes.size(0), codes.size(1), semitones_.dim()});
    for (int64_t i = 0; i < codes.size(2); ++i)
      frames = frames + at::embedding(tables_[static_cast<size_t>(i)], codes.select(2, i));
    const at::Tensor loudness =
        at::clamp_min(frames, 0).square().transpose(1, 2);  // [batch, semitones, frames]
    const int64_t samples = codes.size(1) * kTonalHop;
    const at::Tensor smooth = at::upsample_linear1d(loudness, {samples}, false);
    const at::Tensor time = at::arange(samples, at::kDouble) * (2 * M_PI / kTonalRate);
    const at::Tensor waves =
        at::sin(semitones_.frequencies_hz().to(at::kDouble).unsqueeze(1) * time).to(at::kFloat);
    return (smooth * waves).sum(1) * 0.2;
  }

 private:
  Semitones semitones_{tonal_frames(false)};
  int64_t size_;
  std::vector<at::Tensor> tables_;  // [codes, semitones]
  std::string identity_ = "pitch codec";
};

}  // namespace melete::testing
