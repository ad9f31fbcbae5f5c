// Listening to a whole folder so that a person need not: `melete data check` finds the files that would hurt
// a training run, `melete data stats` shows what there is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/base/manifest.h"

namespace melete {

struct CheckLimits {
  double min_seconds = 0.1;     // shorter is "too short"
  double silence_dbfs = -60.0;  // a peak below this is "silent"
  double clipped_dbfs = -0.01;  // a peak that is flat at or above this is clipped
  int clipped_run_samples = 3;  // flat for this many samples
  int clipped_runs = 3;         // this many flat peaks and the file is "clipped"
};

enum class Problem { unreadable, changed, empty, too_short, silent, clipped };
std::string problem_name(Problem problem);  // "too short"

struct Finding {
  std::string path;
  Problem problem;
  std::string detail;
};

struct CheckReport {
  int64_t files = 0;              // all that were looked at, unreadable ones included
  std::vector<Finding> findings;  // sorted by path; at most one per file, the gravest
  std::string table(size_t most_rows = 50) const;
};

CheckReport check_data(const std::string& folder_or_manifest, const CheckLimits& limits = {},
                       const ProgressCallback& progress = {});

struct DataStats {
  int64_t files = 0;
  int64_t with_text = 0;
  std::vector<double> seconds;        // one per readable file
  std::vector<double> loudness_lufs;  // integrated (EBU R128); only files long and loud enough to have one
  std::map<int, int64_t> rates_hz;    // rate -> files
  std::map<int, int64_t> channels;    // channels -> files
  std::vector<SkippedFile> skipped;

  double total_seconds() const;
  std::string render(int width_columns = 78) const;  // tables and histograms for a terminal
};

// with_loudness decodes every file; without it only headers are read.
DataStats data_stats(const std::string& folder_or_manifest, bool with_loudness = true,
                     const ProgressCallback& progress = {});

// One line per bin, bars of unicode eighths: "  2.0 -   4.0 │██████▌ 13". Empty string for no values.
std::string histogram(const std::vector<double>& values, const std::string& unit, int bins = 10,
                      int width_columns = 78);

}  // namespace melete
