// Timings of a whole collection (`melete data align`).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/base/manifest.h"
#include "systems/voicebox/load.h"

namespace melete::voicebox {

struct AlignedRecordings {
  Timings timings;
  std::vector<SkippedFile> skipped;  // without text, unreadable, or with another text than what is said
};
AlignedRecordings align_recordings(SpeechAligner& aligner, const std::vector<ManifestEntry>& entries,
                                   const ProgressCallback& progress = {});

// The share of phonemes that last no longer than this, first and last ones not counted. Of an aligner that
// has learned nothing it is near 1 for one frame: its path runs through all phonemes at once and stays in the
// last.
double short_share(const Timings& timings, double seconds);

// How far the ends of phonemes are from those that are known, of recordings that are in both.
struct TimingErrors {
  int64_t recordings = 0, ends = 0;
  double median_ms = 0, mean_ms = 0;
  double within_25_ms = 0, within_50_ms = 0;  // shares
};
TimingErrors timing_errors(const Timings& found, const Timings& known);

}  // namespace melete::voicebox
