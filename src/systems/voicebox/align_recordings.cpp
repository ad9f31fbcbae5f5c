#include "systems/voicebox/align_recordings.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "io/audio_tensor.h"

namespace melete::voicebox {

AlignedRecordings align_recordings(SpeechAligner& aligner, const std::vector<ManifestEntry>& entries,
                                   const ProgressCallback& progress) {
  AlignedRecordings result;
  result.timings.phonemizer = aligner.phonemizer();
  const Phonemizer phonemizer(aligner.phonemizer());
  int64_t done = 0;
  for (const ManifestEntry& entry : entries) {
    try {
      require(!entry.text.empty(), "it has no text");
      SpokenTiming timing;
      timing.path = entry.path;
      timing.phonemes = phonemizer(entry.text);
      timing.ends_seconds = aligner.ends_seconds(read_mono(entry.path, aligner.rate_hz()), timing.phonemes);
      result.timings.list.push_back(std::move(timing));
    } catch (const Error& error) {
      result.skipped.push_back({entry.path, error.what()});
    }
    if (progress) progress(++done, static_cast<int64_t>(entries.size()));
  }
  return result;
}

double short_share(const Timings& timings, double seconds) {
  int64_t all = 0, brief = 0;
  for (const SpokenTiming& timing : timings.list)
    for (size_t i = 1; i + 1 < timing.ends_seconds.size(); ++i, ++all)
      if (timing.ends_seconds[i] - timing.ends_seconds[i - 1] < seconds + 1e-6) ++brief;
  return all == 0 ? 0 : static_cast<double>(brief) / static_cast<double>(all);
}

TimingErrors timing_errors(const Timings& found, const Timings& known) {
  const TimingIndex index(known.list);
  TimingErrors errors;
  std::vector<double> off_ms;
  for (const SpokenTiming& timing : found.list) {
    const SpokenTiming* right = index.find(timing.path);
    if (right == nullptr || right->phonemes.size() != timing.phonemes.size()) continue;
    ++errors.recordings;
    // The last end is that of the recording in both.
    for (size_t i = 0; i + 1 < timing.ends_seconds.size(); ++i)
      off_ms.push_back(1000 * std::abs(timing.ends_seconds[i] - right->ends_seconds[i]));
  }
  require(!off_ms.empty(), "[timings] none of the recordings is in both, with as many phonemes");
  std::sort(off_ms.begin(), off_ms.end());
  const auto count = static_cast<double>(off_ms.size());
  const auto share = [&](double ms) {
    return static_cast<double>(std::upper_bound(off_ms.begin(), off_ms.end(), ms) - off_ms.begin()) / count;
  };
  errors.ends = static_cast<int64_t>(off_ms.size());
  errors.median_ms = off_ms[off_ms.size() / 2];
  for (const double ms : off_ms) errors.mean_ms += ms / count;
  errors.within_25_ms = share(25);
  errors.within_50_ms = share(50);
  return errors;
}

}  // namespace melete::voicebox
