// Looking through a whole collection of pictures so that a person need not: those that would hurt a training
// run, and what there is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/base/picture_list.h"

namespace melete {

struct PictureLimits {
  int64_t min_side = 32;   // pixels; a shorter side is "tiny"
  int64_t one_colour = 2;  // no channel has values further apart than this: "one colour"
  // Of 128 that may differ in two pictures that look the same, at most 7; below 0: pictures are not compared.
  int64_t duplicate_bits = 2;
};

enum class PictureProblem { unreadable, damaged, tiny, one_colour, duplicate };
std::string problem_name(PictureProblem problem);  // "one colour"

struct PictureFinding {
  std::string path;
  PictureProblem problem;
  std::string detail;
};

struct PictureReport {
  int64_t files = 0;
  std::vector<PictureFinding> findings;  // sorted by path; at most one per file, the gravest
  std::string table(size_t most_rows = 50) const;
};

PictureReport check_pictures(const std::vector<ManifestEntry>& pictures, const PictureLimits& limits = {},
                             const ProgressCallback& progress = {});

struct PictureStats {
  int64_t files = 0, with_text = 0, grey = 0, transparent = 0, unreadable = 0;
  std::vector<double> shorter_sides, aspects,
      caption_words;  // one a readable picture; captions that there are
  std::map<std::string, int64_t> formats;
  double mean_colour[3] = {0, 0, 0};  // of all pictures, each counting the same; 0 to 255

  std::string render(int width_columns = 78) const;
};
PictureStats picture_stats(const std::vector<ManifestEntry>& pictures, const ProgressCallback& progress = {});

// A list as load_pictures reads it, with sizes: {"path": "a/b.jpg", "text": "a cat", "width": 640, ...}.
// Pictures that cannot be read are left out and given back.
std::vector<SkippedFile> write_picture_list(const std::string& path,
                                            const std::vector<ManifestEntry>& pictures,
                                            const ProgressCallback& progress = {});

}  // namespace melete
