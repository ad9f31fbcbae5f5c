#include "pretrained/feature_stream.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr int64_t kRowsAtOnce = 8;  // through the network: bounds the memory of its activations

}  // namespace

FeatureStream::FeatureStream(const FrameFeatures& features, std::vector<ManifestEntry> entries,
                             int64_t batch_frames, uint64_t seed, AudioDataset::OnFailure on_failure,
                             double segment_seconds)
    : features_(features) {
  const auto samples = static_cast<int64_t>(segment_seconds * static_cast<double>(features.rate_hz()));
  const int64_t frames = std::max<int64_t>(1, features.frames(samples));
  RecordingsConfig config;
  config.rates_hz = {features.rate_hz()};
  config.segment_seconds = segment_seconds;
  config.valid_fraction = 0;
  const auto rows = static_cast<int64_t>(entries.size());
  require(rows > 0, "[kmeans] there are no recordings");
  // A small collection gives several segments of a recording to one batch.
  const int64_t wanted = std::max<int64_t>(1, (batch_frames + frames - 1) / frames);
  auto dataset = std::make_shared<AudioDataset>(std::move(entries), config, std::move(on_failure));
  BatchShare share;
  share.batch_size = wanted;
  loader_ = std::make_unique<BatchLoader>(std::move(dataset), config, seed, share);
}

at::Tensor FeatureStream::batch(int64_t number) {
  const Batch batch = loader_->batch(number);
  const at::Tensor wave = batch["wave"], lengths = batch.lengths("wave");
  // Rows of one length go through the network together; none sees another's padding.
  std::map<int64_t, std::vector<int64_t>> by_length;
  for (int64_t i = 0; i < wave.size(0); ++i) by_length[lengths[i].item<int64_t>()].push_back(i);
  std::vector<at::Tensor> parts;
  for (const auto& [length, rows] : by_length) {
    if (length < features_.shortest_samples()) continue;
    for (size_t begin = 0; begin < rows.size(); begin += kRowsAtOnce) {
      const size_t end = std::min(rows.size(), begin + static_cast<size_t>(kRowsAtOnce));
      const std::vector<int64_t> some(rows.begin() + static_cast<int64_t>(begin),
                                      rows.begin() + static_cast<int64_t>(end));
      const at::Tensor audio = wave.index_select(0, at::tensor(some, at::kLong)).narrow(1, 0, length);
      parts.push_back(features_.frames_of(audio).flatten(0, 1));
    }
  }
  require(!parts.empty(), "[kmeans] every recording is shorter than a frame of {} samples",
          features_.shortest_samples());
  return at::cat(parts, 0);
}

}  // namespace melete
