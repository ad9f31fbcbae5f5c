// When each phoneme of a recording is said. A file of them is one JSON object a line: first how text became
// phonemes, then {"path": "a.flac", "phonemes": "_ ð ə ...", "ends": [0.05, 0.11, ...]} for each recording,
// ends in seconds. What other aligners write is read as well: Praat's TextGrids in both forms, the Montreal
// aligner's CSV, festvox labels, CTM files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/base/phonemes.h"

namespace melete {

struct EspeakSpeech;

struct SpokenTiming {
  std::string path;  // of the recording, ready to open
  Phonemes phonemes;
  std::vector<double> ends_seconds;  // rising, one a phoneme
};

struct Timings {
  PhonemizerConfig phonemizer;
  bool from_melete = true;  // then it is known how text became phonemes
  std::vector<SpokenTiming> list;
};

// Paths below the file's folder are written relative to it, as manifests have them.
void write_timings(const std::string& path, const Timings& timings);
// Such a file; or a folder of TextGrids, CSV files or labels (.TextGrid, .csv, .lab), or a CTM file, whose
// recordings are then known by their names alone.
Timings read_timings(const std::string& path);

// Finds recordings by path, or by file name without extension where timings came from another program.
class TimingIndex {
 public:
  explicit TimingIndex(std::vector<SpokenTiming> list);
  const SpokenTiming* find(const std::string& recording) const;  // nullptr: none
  int64_t size() const { return static_cast<int64_t>(list_.size()); }

 private:
  std::vector<SpokenTiming> list_;
  std::map<std::string, size_t> by_path_, by_name_;
};

// How many frames each phoneme takes of `frames` of them, so that none is lost to rounding: a phoneme ends at
// the frame nearest to its end, and the last at the last.
std::vector<int64_t> frames_of(const std::vector<double>& ends_seconds, double frames_per_second,
                               int64_t frames);

// Times that espeak-ng's events give to the phonemes of the same text: pauses inside words belong to what is
// before them.
std::vector<double> ends_of_events(const Phonemes& phonemes, const EspeakSpeech& speech, double seconds);

}  // namespace melete
