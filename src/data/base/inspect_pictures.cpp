#include "data/base/inspect_pictures.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "core/base/error.h"
#include "data/base/inspect.h"
#include "data/base/picture_resize.h"
#include "io/base/atomic_file.h"
#include "io/base/picture_file.h"

namespace melete {

namespace {

// Whether it gets clearly brighter from one place to the next, along rows and along columns of a 9 x 9
// picture: stays the same when a picture is resized, recompressed or made a little brighter. Coarse colours
// follow, so that a red square is no copy of a green one.
struct Fingerprint {
  uint64_t along_rows = 0, along_columns = 0;
  std::array<uint8_t, 12> colours{};  // means of the four quarters

  int distance(const Fingerprint& other) const {
    return std::popcount(along_rows ^ other.along_rows) + std::popcount(along_columns ^ other.along_columns);
  }
  bool like_colours(const Fingerprint& other) const {
    constexpr int kNear = 12;
    for (size_t i = 0; i < colours.size(); ++i)
      if (std::abs(int{colours[i]} - int{other.colours[i]}) > kNear) return false;
    return true;
  }
};

Fingerprint fingerprint_of(const Image& image) {
  constexpr int kSide = 9;   // one more than there are bits along a side
  constexpr int kClear = 3;  // more than the noise of a flat ground
  const std::vector<uint8_t> grey = to_grey(resize(image, kSide, kSide));
  const auto at = [&](int row, int column) { return grey[static_cast<size_t>(row * kSide + column)]; };
  Fingerprint made;
  for (int row = 0; row + 1 < kSide; ++row)
    for (int column = 0; column + 1 < kSide; ++column) {
      const int bit = row * (kSide - 1) + column;
      if (at(row, column + 1) > at(row, column) + kClear) made.along_rows |= uint64_t{1} << bit;
      if (at(row + 1, column) > at(row, column) + kClear) made.along_columns |= uint64_t{1} << bit;
    }
  const Image quarters = resize(image, 2, 2);
  std::copy(quarters.rgb.begin(), quarters.rgb.end(), made.colours.begin());
  return made;
}

// The widest range of values that any channel has.
int64_t spread_of(const Image& image) {
  std::array<uint8_t, 3> least{255, 255, 255}, most{0, 0, 0};
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    least[i % 3] = std::min(least[i % 3], image.rgb[i]);
    most[i % 3] = std::max(most[i % 3], image.rgb[i]);
  }
  int64_t widest = 0;
  for (size_t channel = 0; channel < 3; ++channel)
    widest = std::max<int64_t>(widest, most[channel] - least[channel]);
  return widest;
}

struct LookedAt {
  std::optional<PictureFinding> finding;
  Fingerprint fingerprint;
};

LookedAt look_at(const std::string& path, const PictureLimits& limits) {
  LookedAt result;
  const auto found = [&](PictureProblem problem, std::string detail) {
    result.finding = PictureFinding{path, problem, std::move(detail)};
  };
  Picture picture;
  try {
    picture = read_picture(path);
  } catch (const Error& error) {
    found(PictureProblem::unreadable, error.what());
    return result;
  }
  const Image& image = picture.image;
  const int64_t spread = spread_of(image);
  if (picture.damaged)
    found(PictureProblem::damaged, "the file ends too early or has an error in it");
  else if (std::min(image.width, image.height) < limits.min_side)
    found(PictureProblem::tiny, fmt::format("{} x {} pixels", image.width, image.height));
  else if (spread <= limits.one_colour)
    found(PictureProblem::one_colour, fmt::format("no channel's values lie further apart than {}", spread));
  result.fingerprint = fingerprint_of(image);
  return result;
}

constexpr int kBands = 8;  // of 16 bits: two fingerprints with less than 8 bits between them share one

std::array<uint32_t, kBands> bands_of(const Fingerprint& fingerprint) {
  std::array<uint32_t, kBands> bands{};
  for (uint32_t i = 0; i < kBands; ++i) {
    const uint64_t half = i < kBands / 2 ? fingerprint.along_rows : fingerprint.along_columns;
    bands[i] = (i << 16) | static_cast<uint32_t>((half >> (16 * (i % (kBands / 2)))) & 0xffff);
  }
  return bands;
}

// Of the sound pictures, those that look like one before them. Only pictures that share a band are compared.
void find_duplicates(const std::vector<ManifestEntry>& pictures, std::vector<LookedAt>& seen,
                     int64_t duplicate_bits) {
  std::unordered_map<uint32_t, std::vector<size_t>> by_band;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i].finding) continue;
    const Fingerprint& own = seen[i].fingerprint;
    const auto like = [&](size_t other) {
      const Fingerprint& first = seen[other].fingerprint;
      return own.distance(first) <= duplicate_bits && own.like_colours(first);
    };
    const auto bands = bands_of(own);
    for (const uint32_t band : bands) {
      const std::vector<size_t>& candidates = by_band[band];
      const auto twin = std::find_if(candidates.begin(), candidates.end(), like);
      if (twin == candidates.end()) continue;
      seen[i].finding =
          PictureFinding{pictures[i].path, PictureProblem::duplicate, "looks like " + pictures[*twin].path};
      break;
    }
    if (seen[i].finding) continue;
    for (const uint32_t band : bands) by_band[band].push_back(i);
  }
}

std::string counted(const std::map<std::string, int64_t>& counts) {
  std::string out;
  for (const auto& [name, count] : counts)
    out += fmt::format("{} {} {}", out.empty() ? "" : ",", count, name);
  return out;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::string problem_name(PictureProblem problem) {
  switch (problem) {
    case PictureProblem::unreadable:
      return "unreadable";
    case PictureProblem::damaged:
      return "damaged";
    case PictureProblem::tiny:
      return "tiny";
    case PictureProblem::one_colour:
      return "one colour";
    case PictureProblem::duplicate:
      return "duplicate";
  }
  return "unknown";
}

PictureReport check_pictures(const std::vector<ManifestEntry>& pictures, const PictureLimits& limits,
                             const ProgressCallback& progress) {
  std::vector<LookedAt> seen(pictures.size());
  for_each_parallel(
      static_cast<int64_t>(pictures.size()),
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        seen[at] = look_at(pictures[at].path, limits);
      },
      progress);
  if (limits.duplicate_bits >= 0) find_duplicates(pictures, seen, limits.duplicate_bits);
  PictureReport report;
  report.files = static_cast<int64_t>(pictures.size());
  for (LookedAt& one : seen)
    if (one.finding) report.findings.push_back(std::move(*one.finding));
  std::sort(report.findings.begin(), report.findings.end(),
            [](const PictureFinding& a, const PictureFinding& b) { return a.path < b.path; });
  return report;
}

std::string PictureReport::table(size_t most_rows) const {
  if (findings.empty()) return fmt::format("{} pictures, all good\n", files);
  std::map<std::string, int64_t> counts;
  for (const PictureFinding& finding : findings) ++counts[problem_name(finding.problem)];
  std::string out = fmt::format("{:<12}{}\n", "problem", "picture");
  for (size_t i = 0; i < std::min(most_rows, findings.size()); ++i)
    out += fmt::format("{:<12}{}\n{:<12}  {}\n", problem_name(findings[i].problem), findings[i].path, "",
                       findings[i].detail);
  if (findings.size() > most_rows) out += fmt::format("... and {} more\n", findings.size() - most_rows);
  return out + fmt::format("\n{} pictures, {} with problems:{}\n", files, findings.size(), counted(counts));
}

PictureStats picture_stats(const std::vector<ManifestEntry>& pictures, const ProgressCallback& progress) {
  std::vector<std::optional<Picture>> seen(pictures.size());
  std::vector<PictureSize> sizes(pictures.size());
  for_each_parallel(
      static_cast<int64_t>(pictures.size()),
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        try {
          Picture picture = read_picture(pictures[at].path);
          sizes[at] = {picture.image.width, picture.image.height};
          picture.image = resize(picture.image, 1, 1);  // its mean colour is all that is kept of it
          seen[at] = std::move(picture);
        } catch (const Error&) {  // counted below
        }
      },
      progress);
  PictureStats stats;
  stats.files = static_cast<int64_t>(pictures.size());
  for (size_t i = 0; i < pictures.size(); ++i) {
    if (!pictures[i].text.empty()) {
      ++stats.with_text;
      stats.caption_words.push_back(
          static_cast<double>(1 + std::count(pictures[i].text.begin(), pictures[i].text.end(), ' ')));
    }
    if (!seen[i]) {
      ++stats.unreadable;
      continue;
    }
    const auto [width, height] = sizes[i];
    stats.shorter_sides.push_back(std::min(width, height));
    stats.aspects.push_back(static_cast<double>(width) / height);
    stats.grey += seen[i]->grey;
    stats.transparent += seen[i]->transparent;
    ++stats.formats[seen[i]->format];
    for (size_t channel = 0; channel < 3; ++channel)
      stats.mean_colour[channel] += seen[i]->image.rgb[channel];
  }
  for (double& channel : stats.mean_colour)
    channel /= std::max<double>(1, static_cast<double>(stats.shorter_sides.size()));
  return stats;
}

std::string PictureStats::render(int width_columns) const {
  std::string out = fmt::format("{} pictures, {} with a caption:{}\n", files, with_text, counted(formats));
  if (grey + transparent > 0)
    out += fmt::format("{} without colours, {} with transparency\n", grey, transparent);
  if (!shorter_sides.empty()) {
    out += fmt::format("\nshorter side: median {:g} pixels\n", median(shorter_sides));
    out += histogram(shorter_sides, "px", 10, width_columns);
    out += fmt::format("\nwidth over height: median {:.2f}\n", median(aspects));
    out += histogram(aspects, "", 10, width_columns);
    out += fmt::format("\nmean colour: red {:.0f}, green {:.0f}, blue {:.0f} of 255\n", mean_colour[0],
                       mean_colour[1], mean_colour[2]);
  }
  if (!caption_words.empty()) {
    out += fmt::format("\nwords of a caption: median {:g}\n", median(caption_words));
    out += histogram(caption_words, "words", 10, width_columns);
  }
  if (unreadable > 0)
    out +=
        fmt::format("\n{} could not be read; `melete data check --kind pictures` names them\n", unreadable);
  return out;
}

std::vector<SkippedFile> write_picture_list(const std::string& path,
                                            const std::vector<ManifestEntry>& pictures,
                                            const ProgressCallback& progress) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(fs::path(path)).parent_path();
  std::vector<std::string> lines(pictures.size());
  std::vector<std::string> reasons(pictures.size());
  for_each_parallel(
      static_cast<int64_t>(pictures.size()),
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        try {
          const Image image = read_picture(pictures[at].path).image;
          const nlohmann::ordered_json line = {
              {"path", fs::absolute(pictures[at].path).lexically_relative(folder).string()},
              {"text", pictures[at].text},
              {"width", image.width},
              {"height", image.height}};
          lines[at] = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
        } catch (const Error& error) {
          reasons[at] = error.what();
        }
      },
      progress);
  std::vector<SkippedFile> skipped;
  AtomicFile file(path);
  for (size_t i = 0; i < pictures.size(); ++i) {
    if (lines[i].empty())
      skipped.push_back({pictures[i].path, reasons[i]});
    else
      file.write(lines[i]);
  }
  require(skipped.size() < pictures.size(), "[pictures] none of the {} pictures can be read",
          pictures.size());
  file.commit();
  return skipped;
}

}  // namespace melete
