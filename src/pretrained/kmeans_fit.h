// Mini-batch k-means over frames that need not fit into memory: k-means++ starts on a sample, the best of
// several goes on over a stream of batches, and clusters that nothing chooses are put where they are needed.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "config/schema.h"
#include "pretrained/kmeans_tokenizer.h"

namespace melete {

struct KmeansConfig {
  int64_t clusters = 500;
  int64_t batch_frames = 10000;
  int64_t start_frames = 30000;  // of the sample that starts are made on; at least 4 a cluster
  int64_t restarts = 3;
  int64_t start_iterations = 5;  // of plain k-means on the sample, for each start
  int64_t max_batches = 150;
  int64_t patience = 20;     // batches without a better average before it stops
  double dead_share = 0.02;  // a cluster that has less than this part of its fair share is put elsewhere
  bool standardise = true;   // features of equal spread; right for cepstra, not needed for HuBERT
  int64_t seed = 42;
};
void describe(Schema& schema, KmeansConfig& config);

struct KmeansProgress {
  enum class Stage { start, batch };
  Stage stage = Stage::batch;
  int64_t number = 0;    // of the start or batch, from 1
  double inertia = 0;    // mean squared distance of a frame to its centroid, in the units that are compared
  double average = 0;    // its moving average over batches
  int64_t reseeded = 0;  // clusters moved so far
};

struct KmeansFit {
  Centroids centroids;
  double inertia = 0;       // on the sample that the starts were made on
  double total_spread = 0;  // the same with one centroid: how much there was to explain
  int64_t batches = 0, frames = 0, reseeded = 0;
  int64_t unused = 0;  // clusters that no frame of the sample chooses
};

// Batch `number` of the stream: [frames, dim], as many as it likes, a function of its number.
using FrameBatches = std::function<at::Tensor(int64_t number)>;

// Computes on `device`; the centroids come to the host.
KmeansFit fit_kmeans(const FrameBatches& batches, const KmeansConfig& config,
                     const std::function<void(const KmeansProgress&)>& progress = {},
                     at::Device device = at::kCPU);

}  // namespace melete
