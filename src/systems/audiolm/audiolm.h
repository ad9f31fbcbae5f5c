// AudioLM from end to end: semantic tokens, coarse codes, fine codes, sound.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "roles/codec.h"
#include "roles/semantic_tokenizer.h"
#include "roles/text_encoder.h"
#include "systems/audiolm/stages.h"

namespace melete {

// Parts that belong together; all in eval mode.
struct AudioLm {
  SemanticTransformer semantic{nullptr};
  CoarseTransformer coarse{nullptr};
  FineTransformer fine{nullptr};  // may be empty: sound from the coarse codes alone
  std::shared_ptr<const SemanticTokenizer>
      tokenizer;  // needed for a prompt, and to know how long a second is
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const TextEncoder>
      text_encoder;                // for stages that are conditioned on text and have none of their own
  bool unique_consecutive = true;  // what they were trained on: runs of one semantic token count once

  // Throws an Error that names both values where sizes do not fit together.
  void check() const;
  bool conditioned() const;
  // Whether a stage is conditioned and has no text encoder of its own.
  bool needs_text_encoder() const;
};

struct AudioLmRequest {
  int64_t batch = 1;
  at::Tensor prompt;  // [samples] or [batch, samples]; undefined: from nothing
  int64_t prompt_rate_hz = 0;
  at::Tensor prompt_semantic;  // [batch, tokens]: the prompt's semantic tokens, where they were made before
  std::vector<std::string> texts;  // one, or one a row
  at::Tensor text_features;        // [batch, length, dim] instead of texts
  // The same for stages that each have their own, as MusicLM's; where one is given it goes before the above.
  at::Tensor semantic_features, coarse_features, fine_features;
  double seconds = 5;           // of new sound
  int64_t semantic_length = 0;  // tokens in all instead of seconds, and
  int64_t coarse_frames = 0;    // new frames instead of seconds
  SamplingConfig semantic, coarse, fine;
  uint64_t seed = 0;
  Draws* draws = nullptr;                          // instead of the seed, for tests
  bool unique_consecutive = true;                  // where the models were trained so
  bool may_end = true;                             // see StageRequest
  WeightStorage weights = WeightStorage::float32;  // see StageRequest
  bool as_audiolm_pytorch = false;                 // see StageRequest
  std::function<void(const std::string& stage, int64_t done, int64_t of)> progress;
};

struct AudioLmResult {
  at::Tensor semantic;  // [batch, tokens], -1 from the end on
  at::Tensor coarse;    // [batch, frames, coarse quantizers]
  at::Tensor acoustic;  // [batch, frames, quantizers]
  // One a row, [samples] at the codec's rate, the prompt included; on the host, wherever the models are.
  std::vector<at::Tensor> waves;
  int64_t prompt_samples = 0;  // at the beginning of each wave, which the prompt's codes became
};

AudioLmResult generate(AudioLm& model, const AudioLmRequest& request);

}  // namespace melete
