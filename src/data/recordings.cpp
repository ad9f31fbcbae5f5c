#include "data/recordings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/audio_file.h"

namespace melete {

int64_t RecordingsConfig::highest_rate_hz() const {
  return *std::ranges::max_element(rates_hz);
}

int64_t RecordingsConfig::segment_length() const {
  if (segment_seconds > 0) return std::llround(segment_seconds * static_cast<double>(highest_rate_hz()));
  return segment_samples;
}

int64_t RecordingsConfig::multiple_for(size_t rate) const {
  if (multiple_of.empty()) return 1;
  return std::max<int64_t>(multiple_of[multiple_of.size() == 1 ? 0 : rate], 1);
}

void RecordingsConfig::check_segment() const {
  require(segment_seconds == 0 || segment_samples == 0,
          "[data.segment_seconds] expected either this or data.segment_samples, got {} and {}; set one to 0",
          segment_seconds, segment_samples);
}

void RecordingsConfig::check() const {
  require(!rates_hz.empty(), "[data.rates_hz] expected at least one rate, got none; try 16000");
  for (const int64_t rate : rates_hz)
    require(rate >= 1 && rate <= 10'000'000, "[data.rates_hz] expected rates of 1 to 10000000 Hz, got {}",
            rate);
  check_segment();
  require(segment_seconds == 0 || segment_length() > 0,
          "[data.segment_seconds] expected at least one sample, got {} s", segment_seconds);
  require(multiple_of.size() <= 1 || multiple_of.size() == rates_hz.size(),
          "[data.multiple_of] expected one number, or one for each of the {} rates, got {}", rates_hz.size(),
          multiple_of.size());
  for (size_t rate = 0; rate < rates_hz.size() && segment_length() > 0; ++rate) {
    const int64_t highest = highest_rate_hz();
    const int64_t samples = (segment_length() * rates_hz[rate] + highest - 1) / highest;
    require(samples >= multiple_for(rate),
            "[data.multiple_of] expected at most the {} samples of a segment at {} Hz, got {}; try longer "
            "segments",
            samples, rates_hz[rate], multiple_for(rate));
  }
}

void describe(Schema& schema, RecordingsConfig& config) {
  schema.option("rates_hz", config.rates_hz, "rates that items come at; the first is the main one")
      .unit("Hz");
  schema.option("segment_seconds", config.segment_seconds, "length of a segment (0: segment_samples decides)")
      .at_least(0)
      .unit("s");
  schema
      .option("segment_samples", config.segment_samples,
              "length of a segment in samples of the highest rate (0: whole files)")
      .at_least(0)
      .unit("samples");
  schema
      .option("multiple_of", config.multiple_of,
              "cut items to a multiple of this: one number, or one a rate (empty: any length)")
      .unit("samples");
  describe(schema, static_cast<LoaderConfig&>(config));
}

std::string wave_column(size_t rate) {
  return rate == 0 ? "wave" : fmt::format("wave_{}", rate);
}

Item AudioItem::item() && {
  Item result;
  for (size_t rate = 0; rate < waves.size(); ++rate) {
    auto* samples = new std::vector<float>(std::move(waves[rate]));
    // The tensor keeps the samples where they are.
    result.add(wave_column(rate),
               at::from_blob(
                   samples->data(), {static_cast<int64_t>(samples->size())},
                   [samples](void*) { delete samples; }, at::kFloat),
               lengths[rate]);
  }
  result.words = {{"path", path}, {"text", text}, {"tags", fmt::format("{}", fmt::join(tags, "\n"))}};
  return result;
}

AudioDataset::AudioDataset(std::vector<ManifestEntry> entries, RecordingsConfig config, OnFailure on_failure)
    : entries_(std::move(entries)),
      config_(std::move(config)),
      unreadable_(size(), config_.max_failed_share, "recordings", "; try `melete data check`",
                  [this, tell = std::move(on_failure)](int64_t file, const std::string& message) {
                    if (tell) tell(entries_[static_cast<size_t>(file)].path, message);
                  }) {
  require(!entries_.empty(), "[data] expected at least one recording, got none; try `melete data index DIR`");
  config_.check();
}

// Building a filter costs more than using it on a short segment; rates are few.
const Resampler& AudioDataset::resampler(int from_hz, int to_hz) const {
  const std::lock_guard lock(mutex_);
  auto& slot = resamplers_[{from_hz, to_hz}];
  if (!slot) slot = std::make_unique<Resampler>(from_hz, to_hz);
  return *slot;
}

int64_t AudioDataset::length_samples(int64_t index) const {
  const ManifestEntry& entry = entries_.at(static_cast<size_t>(index));
  int64_t frames = entry.frames;
  int rate_hz = entry.rate_hz;
  if (frames <= 0 || rate_hz <= 0) {
    const AudioInfo info = probe_audio(entry.path);
    frames = info.frames;
    rate_hz = info.rate_hz;
  }
  require(frames > 0, "[data] {}: expected sound, got an empty file; remove it", entry.path);
  return resampler(rate_hz, static_cast<int>(config_.highest_rate_hz())).output_frames(frames);
}

int64_t AudioDataset::start_count(int64_t index) const {
  const int64_t segment = config_.segment_length();
  if (segment == 0) return 1;
  // As upstream draws it: the very last start is left out.
  return std::max<int64_t>(length_samples(index) - segment, 1);
}

AudioItem AudioDataset::read(int64_t index, int64_t start) const {
  const ManifestEntry& entry = entries_.at(static_cast<size_t>(index));
  AudioInfo info;
  info.frames = entry.frames;
  info.rate_hz = entry.rate_hz;
  if (info.frames <= 0 || info.rate_hz <= 0) info = probe_audio(entry.path);
  require(info.frames > 0, "[data] {}: expected sound, got an empty file; remove it", entry.path);

  const auto highest = static_cast<int>(config_.highest_rate_hz());
  const Resampler& to_highest = resampler(info.rate_hz, highest);
  const int64_t total = to_highest.output_frames(info.frames);
  const int64_t segment = config_.segment_length();
  const int64_t valid = segment > 0 ? std::min(segment, total) : total;
  require(start >= 0 && start + valid <= total, "[data] {}: expected a start in 0..{}, got {}", entry.path,
          total - valid, start);

  const auto needed = to_highest.source_range(start, start + valid);
  const int64_t begin = std::max<int64_t>(needed.begin, 0), end = std::min(needed.end, info.frames);
  const Audio audio = read_audio(entry.path, begin, end - begin);
  require(audio.rate_hz == info.rate_hz && audio.frames() == end - begin,
          "[data] {}: expected {} frames at {} Hz from frame {} on as indexed, got {} at {} Hz; index the "
          "data again",
          entry.path, end - begin, info.rate_hz, begin, audio.frames(), audio.rate_hz);
  const std::vector<float> mono = downmix(audio);

  std::vector<float> wave(static_cast<size_t>(std::max(valid, segment)), 0.0f);
  to_highest.run(mono, begin, start, std::span(wave).first(static_cast<size_t>(valid)));

  AudioItem item;
  item.path = entry.path;
  item.text = entry.text;
  item.tags = entry.tags;
  for (size_t rate = 0; rate < config_.rates_hz.size(); ++rate) {
    const Resampler& to_rate = resampler(highest, static_cast<int>(config_.rates_hz[rate]));
    std::vector<float> resampled = to_rate.identity() ? wave : to_rate.run(wave);
    const auto size = static_cast<int64_t>(resampled.size());
    const int64_t multiple = config_.multiple_for(rate), kept = size / multiple * multiple;
    require(kept > 0, "[data] {}: expected at least {} samples at {} Hz (data.multiple_of), got {}",
            entry.path, multiple, config_.rates_hz[rate], size);
    resampled.resize(static_cast<size_t>(kept));
    item.lengths.push_back(std::min(kept, to_rate.output_frames(valid)));
    item.waves.push_back(std::move(resampled));
  }
  return item;
}

Item AudioDataset::draw(uint64_t seed, uint64_t epoch, int64_t index) {
  return unreadable_.draw(seed, "segment", epoch, index, [this](int64_t file, Rng& rng) {
    return read(file, rng.integer(0, start_count(file))).item();
  });
}

Split split(const std::vector<ManifestEntry>& entries, double valid_fraction, uint64_t seed) {
  require(valid_fraction >= 0 && valid_fraction <= 1,
          "[data.valid_fraction] expected a number from 0 to 1, got {}", valid_fraction);
  const auto count = static_cast<int64_t>(entries.size());
  auto held_out = static_cast<int64_t>(std::llround(valid_fraction * static_cast<double>(count)));
  if (valid_fraction > 0 && valid_fraction < 1 && count > 1)
    held_out = std::clamp<int64_t>(held_out, 1, count - 1);

  std::vector<int64_t> by_path(entries.size());
  std::iota(by_path.begin(), by_path.end(), int64_t{0});
  std::ranges::stable_sort(
      by_path, {}, [&](int64_t i) -> const std::string& { return entries[static_cast<size_t>(i)].path; });
  const std::vector<int64_t> order = Rng(random_key(seed, "split")).permutation(count);
  std::vector<bool> is_valid(entries.size(), false);
  for (int64_t i = 0; i < held_out; ++i)
    is_valid[static_cast<size_t>(by_path[static_cast<size_t>(order[static_cast<size_t>(i)])])] = true;

  Split result;
  for (size_t i = 0; i < entries.size(); ++i)
    (is_valid[i] ? result.valid : result.train).push_back(entries[i]);
  return result;
}

}  // namespace melete
