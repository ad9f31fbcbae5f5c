// Recordings -> frames of features for k-means, batch by batch.
#pragma once

#include <memory>
#include <vector>

#include "data/loader.h"
#include "data/recordings.h"
#include "pretrained/kmeans_tokenizer.h"

namespace melete {

// Batch n is a function of (seed, n): random segments, read ahead by worker threads. Padding gives no frames.
class FeatureStream {
 public:
  FeatureStream(const FrameFeatures& features, std::vector<ManifestEntry> entries, int64_t batch_frames,
                uint64_t seed, AudioDataset::OnFailure on_failure = {}, double segment_seconds = 4);

  at::Tensor batch(int64_t number);  // [frames, dim]

 private:
  const FrameFeatures& features_;
  std::unique_ptr<BatchLoader> loader_;
};

}  // namespace melete
