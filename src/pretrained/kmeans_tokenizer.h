// Semantic tokens by k-means: features of each frame, then the number of the nearest centroid.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "io/tensors.h"
#include "nn/frozen.h"
#include "nn/mfcc.h"
#include "nn/semitones.h"
#include "pretrained/hubert.h"
#include "roles/placed.h"
#include "roles/semantic_tokenizer.h"

namespace melete {

// What k-means clusters. Frozen; callable from several threads at once.
class FrameFeatures : public Placed {
 public:
  virtual std::string kind() const = 0;  // "mfcc", "semitones", "hubert"
  virtual int64_t rate_hz() const = 0;
  virtual int64_t samples_per_frame() const = 0;
  virtual int64_t shortest_samples() const = 0;
  virtual int64_t frames(int64_t samples) const = 0;
  virtual int64_t dim() const = 0;
  virtual at::Tensor frames_of(
      const at::Tensor& audio) const = 0;             // [batch, samples] -> [batch, frames, dim]
  virtual nlohmann::ordered_json config() const = 0;  // enough to build it again, with tensors()
  virtual TensorMap tensors() const = 0;
};

// Features that are a formula of the wave, with nothing learned in them.
template <class Formula>
class FormulaFeatures final : public FrameFeatures {
 public:
  explicit FormulaFeatures(const typename Formula::Config& config = {}) : formula_(config) {}
  std::string kind() const override { return Formula::kName; }
  int64_t rate_hz() const override { return formula_.config().sample_rate_hz; }
  int64_t samples_per_frame() const override { return formula_.config().hop; }
  int64_t shortest_samples() const override { return formula_.config().hop; }
  int64_t frames(int64_t samples) const override { return samples / formula_.config().hop; }
  int64_t dim() const override { return formula_.dim(); }
  at::Tensor frames_of(const at::Tensor& audio) const override {
    const at::Tensor wave = audio.to(device_);
    const FrozenScope frozen(wave);
    return formula_(wave).to(audio.device());
  }
  void move_to(at::Device device) override { device_ = device; }
  nlohmann::ordered_json config() const override {
    typename Formula::Config config = formula_.config();
    return {{"kind", Formula::kName}, {Formula::kName, schema_of(config).json()}};
  }
  TensorMap tensors() const override { return {}; }

 private:
  Formula formula_;
  at::Device device_ = at::kCPU;
};

using MfccFeatures = FormulaFeatures<Mfcc>;           // what is said
using SemitoneFeatures = FormulaFeatures<Semitones>;  // which notes sound

class HubertFeatures final : public FrameFeatures {
 public:
  HubertFeatures(Hubert model, int64_t layer);  // the state after that many layers
  std::string kind() const override { return "hubert"; }
  int64_t rate_hz() const override { return model_->config().sample_rate_hz; }
  int64_t samples_per_frame() const override { return model_->config().samples_per_frame(); }
  int64_t shortest_samples() const override { return model_->config().shortest_samples(); }
  int64_t frames(int64_t samples) const override { return model_->config().frames(samples); }
  int64_t dim() const override { return model_->config().dim; }
  at::Tensor frames_of(const at::Tensor& audio) const override;
  void move_to(at::Device device) override { model_->to(device); }
  nlohmann::ordered_json config() const override;  // the layers above are left out
  TensorMap tensors() const override;

  int64_t layer() const { return layer_; }

 private:
  mutable Hubert model_;
  int64_t layer_;
};

struct Centroids {
  at::Tensor vectors;      // [clusters, dim], in standardised units where mean and scale are given
  at::Tensor mean, scale;  // [dim] or undefined: features are (x - mean) * scale before they are compared
};

// x [..., dim] -> number of the nearest centroid [...] int64
at::Tensor nearest_centroid(const at::Tensor& x, const at::Tensor& centroids);

class KmeansTokenizer final : public SemanticTokenizer {
 public:
  KmeansTokenizer(std::unique_ptr<FrameFeatures> features, Centroids centroids);

  std::string kind() const override { return features_->kind(); }
  int64_t rate_hz() const override { return features_->rate_hz(); }
  int64_t samples_per_token() const override { return features_->samples_per_frame(); }
  int64_t codebook_size() const override { return centroids_.vectors.size(0); }
  const std::string& identity() const override { return identity_; }
  int64_t tokens(int64_t samples) const override { return features_->frames(samples); }
  int64_t shortest_samples() const override { return features_->shortest_samples(); }
  at::Tensor tokenize(const at::Tensor& audio) const override;
  void move_to(at::Device device) override;

  const FrameFeatures& features() const { return *features_; }
  const Centroids& centroids() const { return centroids_; }
  nlohmann::ordered_json config() const;  // {"kind": .., "features": ..}
  TensorMap tensors() const;              // features.*, centroids, mean, scale

 private:
  std::unique_ptr<FrameFeatures> features_;
  Centroids centroids_;
  std::string identity_;
};

// From what config() and tensors() gave; `where` goes into messages.
std::unique_ptr<FrameFeatures> make_features(const nlohmann::ordered_json& config, const TensorMap& tensors,
                                             const std::string& where);
std::unique_ptr<KmeansTokenizer> make_kmeans_tokenizer(const nlohmann::ordered_json& config,
                                                       const TensorMap& tensors, const std::string& where);

}  // namespace melete
