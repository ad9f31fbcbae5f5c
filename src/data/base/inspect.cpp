#include "data/base/inspect.h"

#include <ebur128.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "io/base/audio_file.h"

namespace melete {

namespace {

constexpr int64_t kChunkFrames = 16384;

double to_dbfs(double amplitude) {
  return 20.0 * std::log10(std::max(amplitude, 1e-10));
}

// Counts flattened peaks of one channel: samples in a row near full scale that do not move, or (as lossy
// codecs leave them) that lie beyond it. The round top of a full-scale wave is neither.
class ClipCounter {
 public:
  ClipCounter(double level, int run_samples) : level_(static_cast<float>(level)), run_samples_(run_samples) {}

  void add(float sample) {
    const bool high = std::abs(sample) >= level_;
    const bool beyond = std::abs(sample) > 1 && std::abs(before_) > 1 && (sample > 0) == (before_ > 0);
    run_ = !high ? 0 : sample == before_ || beyond ? run_ + 1 : 1;
    before_ = sample;
    if (run_ == run_samples_) ++runs_;
  }
  int64_t runs() const { return runs_; }

 private:
  float level_;
  float before_ = 0;
  int run_samples_, run_ = 0;
  int64_t runs_ = 0;
};

std::optional<Finding> check_file(const ManifestEntry& entry, bool from_manifest, const CheckLimits& limits) {
  const std::string& path = entry.path;
  AudioInfo info;
  float peak = 0;
  int64_t frames = 0, runs = 0;
  try {
    AudioReader reader(path);
    info = reader.info();
    const auto channels = static_cast<size_t>(info.channels);
    std::vector<ClipCounter> counters(
        channels, ClipCounter(std::pow(10.0, limits.clipped_dbfs / 20.0), limits.clipped_run_samples));
    std::vector<float> chunk(static_cast<size_t>(kChunkFrames) * channels);
    for (int64_t got = 0; (got = reader.read(chunk)) > 0; frames += got) {
      for (size_t i = 0; i < static_cast<size_t>(got) * channels; ++i) {
        peak = std::max(peak, std::abs(chunk[i]));
        counters[i % channels].add(chunk[i]);
      }
    }
    for (const ClipCounter& counter : counters) runs += counter.runs();
  } catch (const Error& error) {
    return Finding{path, Problem::unreadable, error.what()};
  }
  if (frames < info.frames && !info.format.starts_with("MPEG"))
    return Finding{path, Problem::unreadable, fmt::format("ends at frame {} of {}", frames, info.frames)};
  if (from_manifest &&
      (info.frames != entry.frames || info.rate_hz != entry.rate_hz || info.channels != entry.channels))
    return Finding{
        path, Problem::changed,
        fmt::format("the manifest says {} frames, {} Hz, {} channels; the file has {}, {}, {}", entry.frames,
                    entry.rate_hz, entry.channels, info.frames, info.rate_hz, info.channels)};
  if (frames == 0) return Finding{path, Problem::empty, "holds no samples"};
  const double seconds = static_cast<double>(frames) / info.rate_hz;
  if (seconds < limits.min_seconds)
    return Finding{path, Problem::too_short,
                   fmt::format("{:.3f} s, less than {} s", seconds, limits.min_seconds)};
  if (to_dbfs(peak) < limits.silence_dbfs)
    return Finding{path, Problem::silent,
                   peak == 0 ? "digital silence" : fmt::format("peak {:.1f} dBFS", to_dbfs(peak))};
  if (runs >= limits.clipped_runs)
    return Finding{path, Problem::clipped,
                   fmt::format("{} flattened peaks at {:.2f} dBFS", runs, to_dbfs(peak))};
  return std::nullopt;
}

// Integrated loudness, or nothing where it is not defined: shorter than one block of 400 ms, or below the
// gate.
std::optional<double> loudness_of(const std::string& path) {
  AudioReader reader(path);
  const auto channels = static_cast<unsigned>(reader.info().channels);
  ebur128_state* state =
      ebur128_init(channels, static_cast<unsigned long>(reader.info().rate_hz), EBUR128_MODE_I);
  if (state == nullptr) return std::nullopt;  // a rate or channel count that the standard does not cover
  const auto destroy = [](ebur128_state* s) { ebur128_destroy(&s); };
  const std::unique_ptr<ebur128_state, decltype(destroy)> guard(state, destroy);
  std::vector<float> chunk(static_cast<size_t>(kChunkFrames) * channels);
  for (int64_t got = 0; (got = reader.read(chunk)) > 0;)
    if (ebur128_add_frames_float(state, chunk.data(), static_cast<size_t>(got)) != EBUR128_SUCCESS)
      return std::nullopt;
  double loudness = 0;
  if (ebur128_loudness_global(state, &loudness) != EBUR128_SUCCESS || !std::isfinite(loudness))
    return std::nullopt;
  return loudness;
}

std::string bar(double share, int columns) {
  static const char* const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto units = static_cast<int>(std::lround(share * columns * 8));
  std::string out;
  for (int i = 0; i < units / 8; ++i) out += "█";
  // Something that is there should be seen, however small its share.
  return out + (units == 0 && share > 0 ? eighths[1] : eighths[units % 8]);
}

std::string span_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string counts_text(const std::map<int, int64_t>& counts, const char* unit, int64_t files, int width) {
  std::string out;
  for (const auto& [value, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(files);
    out += fmt::format("  {:>16} │{} {}\n", fmt::format("{}{}", value, unit), bar(share, width - 32), count);
  }
  return out;
}

}  // namespace

std::string problem_name(Problem problem) {
  switch (problem) {
    case Problem::unreadable:
      return "unreadable";
    case Problem::changed:
      return "changed";
    case Problem::empty:
      return "empty";
    case Problem::too_short:
      return "too short";
    case Problem::silent:
      return "silent";
    case Problem::clipped:
      return "clipped";
  }
  return "unknown";
}

CheckReport check_data(const std::string& folder_or_manifest, const CheckLimits& limits,
                       const ProgressCallback& progress) {
  const bool from_manifest = !std::filesystem::is_directory(folder_or_manifest);
  CheckReport report;
  FolderIndex index;
  if (from_manifest) {
    index.entries = load_entries(folder_or_manifest);
  } else {
    index = index_folder(folder_or_manifest);
    require(!index.entries.empty() || !index.skipped.empty(), "[data check] no recordings in {}",
            folder_or_manifest);
  }
  for (const SkippedFile& file : index.skipped) {
    const bool empty = file.reason.find("holds no samples") != std::string::npos ||
                       file.reason.find("(0 bytes)") != std::string::npos;
    report.findings.push_back({file.path, empty ? Problem::empty : Problem::unreadable, file.reason});
  }
  std::vector<std::optional<Finding>> found(index.entries.size());
  const auto check = [&](int64_t i) {
    found[static_cast<size_t>(i)] = check_file(index.entries[static_cast<size_t>(i)], from_manifest, limits);
  };
  for_each_parallel(static_cast<int64_t>(found.size()), check, progress);
  for (auto& finding : found)
    if (finding) report.findings.push_back(std::move(*finding));
  report.files = static_cast<int64_t>(index.entries.size() + index.skipped.size());
  std::sort(report.findings.begin(), report.findings.end(),
            [](const Finding& a, const Finding& b) { return a.path < b.path; });
  return report;
}

std::string CheckReport::table(size_t most_rows) const {
  if (findings.empty()) return fmt::format("{} files, all good\n", files);
  std::map<std::string, int64_t> counts;
  for (const Finding& finding : findings) ++counts[problem_name(finding.problem)];
  std::string out = fmt::format("{:<12}{}\n", "problem", "file");
  for (size_t i = 0; i < std::min(most_rows, findings.size()); ++i) {
    // The path stands in front already; what is left of the message is the reason.
    std::string detail = findings[i].detail;
    if (detail.starts_with("[audio] ")) detail.erase(0, 8);
    out += fmt::format("{:<12}{}\n{:<12}  {}\n", problem_name(findings[i].problem), findings[i].path, "",
                       detail);
  }
  if (findings.size() > most_rows) out += fmt::format("... and {} more\n", findings.size() - most_rows);
  out += fmt::format("\n{} files, {} with problems:", files, findings.size());
  for (const auto& [name, count] : counts) out += fmt::format(" {} {}", count, name);
  return out + "\n";
}

double DataStats::total_seconds() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

DataStats data_stats(const std::string& folder_or_manifest, bool with_loudness,
                     const ProgressCallback& progress) {
  DataStats stats;
  const auto entries = load_entries(folder_or_manifest, &stats.skipped);
  std::vector<std::optional<double>> loudness(entries.size());
  std::vector<std::string> reasons(entries.size());
  const auto measure = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    try {
      loudness[at] = loudness_of(entries[at].path);
    } catch (const Error& error) {
      reasons[at] = error.what();
    }
  };
  if (with_loudness) for_each_parallel(static_cast<int64_t>(entries.size()), measure, progress);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!reasons[i].empty()) {
      stats.skipped.push_back({entries[i].path, reasons[i]});
      continue;
    }
    ++stats.files;
    stats.with_text += !entries[i].text.empty();
    stats.seconds.push_back(entries[i].duration_seconds);
    if (loudness[i]) stats.loudness_lufs.push_back(*loudness[i]);
    ++stats.rates_hz[entries[i].rate_hz];
    ++stats.channels[entries[i].channels];
  }
  return stats;
}

std::string histogram(const std::vector<double>& values, const std::string& unit, int bins,
                      int width_columns) {
  if (values.empty() || bins < 1) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  // Edges on round numbers (1, 2 or 5 times a power of ten) read better than exact ones.
  const double raw = std::max((*high - *low) / bins, 1e-6);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double scaled = raw / power;
  double step = power * (scaled <= 1 ? 1 : scaled <= 2 ? 2 : scaled <= 5 ? 5 : 10);
  if (*high - *low < 1e-9) step = std::max(std::abs(*high) * 0.1, 1e-3);
  const double begin = std::floor(*low / step) * step;
  const auto count = static_cast<size_t>(std::clamp(std::floor((*high - begin) / step) + 1, 1.0, bins + 2.0));
  std::vector<int64_t> counts(count);
  for (const double value : values) {
    const double place = std::clamp((value - begin) / step, 0.0, static_cast<double>(count - 1));
    ++counts[static_cast<size_t>(place)];
  }
  const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  const int digits =
      step >= 1 ? 0 : static_cast<int>(std::clamp(std::ceil(-std::log10(step) - 1e-9), 0.0, 6.0));
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    const double edge = begin + static_cast<double>(i) * step;
    const std::string label = fmt::format("{:.{}f} … {:.{}f} {}", edge, digits, edge + step, digits, unit);
    const double share = static_cast<double>(counts[i]) / most;
    out +=
        fmt::format("  {:>{}} │{} {}\n", label, 22, bar(share, std::max(10, width_columns - 38)), counts[i]);
  }
  return out;
}

std::string DataStats::render(int width_columns) const {
  std::string out =
      fmt::format("{} recordings, {}, {} with text\n", files, span_text(total_seconds()), with_text);
  if (files == 0) return out;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  out += fmt::format("\nduration: shortest {}, median {}, longest {}\n", span_text(sorted.front()),
                     span_text(sorted[sorted.size() / 2]), span_text(sorted.back()));
  out += histogram(seconds, "s", 10, width_columns);
  out += "\nsample rate\n" + counts_text(rates_hz, " Hz", files, width_columns);
  out += "\nchannels\n" + counts_text(channels, "", files, width_columns);
  if (!loudness_lufs.empty()) {
    const double mean = std::accumulate(loudness_lufs.begin(), loudness_lufs.end(), 0.0) /
                        static_cast<double>(loudness_lufs.size());
    out += fmt::format("\nintegrated loudness (EBU R128): mean {:.1f} LUFS\n", mean);
    out += histogram(loudness_lufs, "LUFS", 10, width_columns);
    const auto unmeasured = files - static_cast<int64_t>(loudness_lufs.size());
    if (unmeasured > 0) out += fmt::format("  {} files too short or too quiet to measure\n", unmeasured);
  }
  if (!skipped.empty()) {
    out += fmt::format("\n{} files could not be used; `melete data check` names them\n", skipped.size());
  }
  return out;
}

}  // namespace melete
