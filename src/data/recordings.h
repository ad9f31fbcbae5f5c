// Recordings -> training items. An item is a mono segment at one or several rates, read from disk without
// reading the rest of the file, with the numbers that reading all of it would give.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "data/base/manifest.h"
#include "data/dataset.h"
#include "data/unreadable_files.h"
#include "io/base/resample.h"

namespace melete {

struct RecordingsConfig : LoaderConfig {
  std::vector<int64_t> rates_hz = {16000};  // the first is the main one
  double segment_seconds = 0;               // length of a segment; 0 = segment_samples decides
  int64_t segment_samples = 0;              // the same in samples of the highest rate; 0 = whole files
  std::vector<int64_t> multiple_of;         // one a rate, or one for all; empty or 0 = any length

  int64_t highest_rate_hz() const;
  int64_t segment_length() const;           // in samples of the highest rate; 0 = whole files
  int64_t multiple_for(size_t rate) const;  // of rates_hz[rate]; 1 = any length
  void check() const;                       // what one option alone cannot say
  void check_segment() const;               // seconds or samples, for tokens as well
};
void describe(Schema& schema, RecordingsConfig& config);

// The column of an item's sound at the rate of that number: "wave", "wave_1", ...
std::string wave_column(size_t rate);

struct AudioItem {
  std::vector<std::vector<float>> waves;  // one a rate
  std::vector<int64_t>
      lengths;  // samples of each wave that come from the recording; the rest is zero padding
  std::string text, path;
  std::vector<std::string> tags = {};

  Item item() &&;  // waves as columns; "text", "path" and "tags" (one a line) as words
};

class AudioDataset : public Dataset {
 public:
  // Called once for every file that cannot be read, from whichever thread met it.
  using OnFailure = std::function<void(const std::string& path, const std::string& message)>;

  AudioDataset(std::vector<ManifestEntry> entries, RecordingsConfig config, OnFailure on_failure = {});

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  const std::vector<ManifestEntry>& entries() const { return entries_; }
  const RecordingsConfig& config() const { return config_; }

  // Length of a recording in samples of the highest rate.
  int64_t length_samples(int64_t index) const;
  // How many different starts a segment of this recording has; 1 when it is not longer than a segment.
  int64_t start_count(int64_t index) const;

  // The segment that begins at sample `start` of the highest rate. Throws an Error when the file cannot be
  // read.
  AudioItem read(int64_t index, int64_t start) const;

  // The item that (seed, epoch, index) stands for: a random segment. A file that cannot be read is replaced
  // by another one, itself a function of the three; an Error comes when too many of the files tried have
  // failed. Thread safe.
  Item draw(uint64_t seed, uint64_t epoch, int64_t index) override;
  double length(int64_t index) const override {
    return entries_.at(static_cast<size_t>(index)).duration_seconds;
  }

  int64_t failed_files() const { return unreadable_.failed(); }
  int64_t tried_files() const { return unreadable_.tried(); }

 private:
  const Resampler& resampler(int from_hz, int to_hz) const;

  std::vector<ManifestEntry> entries_;
  RecordingsConfig config_;
  UnreadableFiles unreadable_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int, int>, std::unique_ptr<Resampler>> resamplers_;
};

struct Split {
  std::vector<ManifestEntry> train, valid;
};
// Disjoint and complete, and the same whatever order the entries come in. A fraction above 0 gives at least
// one file to each side (of two or more).
Split split(const std::vector<ManifestEntry>& entries, double valid_fraction, uint64_t seed);

}  // namespace melete
