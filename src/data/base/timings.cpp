#include "data/base/timings.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/base/espeak.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr int kVersion = 1;

std::string path_key(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path).lexically_normal().string() : canonical.string();
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), "[timings] cannot read {}", path);
  std::stringstream all;
  all << in.rdbuf();
  return std::move(all).str();
}

// What must hold of timings from anywhere.
void check(const SpokenTiming& timing, const std::string& where) {
  require(!timing.phonemes.empty() && timing.phonemes.size() == timing.ends_seconds.size(),
          "[timings] {}: expected as many ends as phonemes, got {} and {}", where, timing.ends_seconds.size(),
          timing.phonemes.size());
  double before = 0;
  for (const double end : timing.ends_seconds) {
    require(std::isfinite(end) && end >= before, "[timings] {}: ends must not fall, got {} after {}", where,
            end, before);
    before = end;
  }
}

// Names of silence in other aligners' files.
std::string symbol_of(const std::string& label) {
  static constexpr const char* kSilent[] = {"", "sil", "sp", "spn", "SIL", "SP", "<eps>", "pau", "#"};
  const bool silent = std::find(std::begin(kSilent), std::end(kSilent), label) != std::end(kSilent);
  return silent ? kSilence : label;
}

// Intervals with a gap between them: what is not said is silence.
class IntervalList {
 public:
  explicit IntervalList(std::string name) { timing_.path = std::move(name); }
  void add(double from, double to, const std::string& label) {
    constexpr double kGap = 1e-3;
    if (from > end() + kGap) push(kSilence, from);
    push(symbol_of(label), to);
  }
  bool empty() const { return timing_.phonemes.empty(); }
  SpokenTiming take() { return std::move(timing_); }

 private:
  double end() const { return timing_.ends_seconds.empty() ? 0 : timing_.ends_seconds.back(); }
  void push(const std::string& symbol, double to) {
    timing_.phonemes.push_back(symbol);
    timing_.ends_seconds.push_back(to);
  }
  SpokenTiming timing_;
};

// The tier called phones (or phonemes) of a Praat TextGrid in its long form; else its last tier.
SpokenTiming read_textgrid(const std::string& path) {
  std::istringstream in(file_text(path));
  IntervalList chosen(path), current(path);
  bool named = false, interval = false;
  double from = 0, to = 0;
  const auto value = [](const std::string& line) {
    const size_t equals = line.find('=');
    const size_t first = line.find_first_not_of(" \t", equals + 1), last = line.find_last_not_of(" \t\r");
    return equals == std::string::npos || first == std::string::npos ? ""
                                                                     : line.substr(first, last - first + 1);
  };
  const auto unquoted = [](const std::string& text) {
    return text.size() >= 2 && text.front() == '"' ? text.substr(1, text.size() - 2) : text;
  };
  const auto number = [&](const std::string& line) {
    try {
      return std::stod(value(line));
    } catch (const std::exception&) {
      fail("[timings] {}: expected a number in `{}`", path, line);
    }
  };
  bool wanted = false;
  for (std::string line; std::getline(in, line);) {
    const size_t start = line.find_first_not_of(" \t");
    if (start == std::string::npos) continue;
    const std::string_view word = std::string_view(line).substr(start);
    if (word.starts_with("name =")) {
      const std::string name = unquoted(value(line));
      wanted = name == "phones" || name == "phonemes";
      if (!named) chosen = IntervalList(path);
      named = named || wanted;
      interval = false;
    } else if (word.starts_with("intervals [")) {
      interval = true;
    } else if (interval && word.starts_with("xmin =")) {
      from = number(line);
    } else if (interval && word.starts_with("xmax =")) {
      to = number(line);
    } else if (interval && word.starts_with("text =")) {
      if (wanted || !named) chosen.add(from, to, unquoted(value(line)));
    }
  }
  require(!chosen.empty(), "[timings] {} has no intervals; is it a TextGrid in Praat's long form?", path);
  return chosen.take();
}

// Lines of "recording channel start duration label".
Timings read_ctm(const std::string& path) {
  std::istringstream in(file_text(path));
  std::vector<std::pair<std::string, IntervalList>> found;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string name, channel, label;
    double start = 0, duration = 0;
    if (!(words >> name)) continue;
    require(static_cast<bool>(words >> channel >> start >> duration >> label),
            "[timings] {}:{}: expected `recording channel start duration phoneme`, got `{}`", path, number,
            line);
    if (found.empty() || found.back().first != name) found.emplace_back(name, IntervalList(name));
    found.back().second.add(start, start + duration, label);
  }
  Timings timings;
  timings.from_melete = false;
  for (auto& [name, list] : found) timings.list.push_back(list.take());
  return timings;
}

Timings read_own(const std::string& path) {
  Timings timings;
  const fs::path folder = fs::absolute(path).parent_path();
  std::istringstream in(file_text(path));
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      const auto json = nlohmann::ordered_json::parse(line);
      if (number == 1) {
        require(json.at("timings").get<int>() == kVersion, "[timings] {}: version {} is not known", path,
                json.at("timings").dump());
        schema_of(timings.phonemizer).apply(json.at("phonemizer"));
        continue;
      }
      SpokenTiming timing;
      timing.path = (folder / json.at("path").get<std::string>()).lexically_normal().string();
      timing.phonemes = separated(json.at("phonemes").get<std::string>());
      timing.ends_seconds = json.at("ends").get<std::vector<double>>();
      timings.list.push_back(std::move(timing));
    } catch (const nlohmann::json::exception& error) {
      fail("[timings] {}:{}: expected timings as `melete data align` writes them, got `{}` ({})", path,
           number, line.substr(0, 80), error.what());
    }
    if (number > 1) check(timings.list.back(), fmt::format("{}:{}", path, number));
  }
  return timings;
}

}  // namespace

void write_timings(const std::string& path, const Timings& timings) {
  const fs::path folder = fs::absolute(path).lexically_normal().parent_path();
  PhonemizerConfig phonemizer = timings.phonemizer;
  AtomicFile file(path);
  nlohmann::ordered_json head;
  head["timings"] = kVersion;
  head["phonemizer"] = schema_of(phonemizer).json();
  file.write(head.dump() + "\n");
  for (const SpokenTiming& timing : timings.list) {
    const fs::path absolute = fs::absolute(timing.path).lexically_normal();
    const fs::path relative = absolute.lexically_relative(folder);
    const bool below = !relative.empty() && *relative.begin() != "..";
    nlohmann::ordered_json line;
    line["path"] = (below ? relative : absolute).string();
    line["phonemes"] = joined(timing.phonemes);
    // Tenths of a millisecond are more than any aligner knows.
    std::vector<double> ends;
    for (const double end : timing.ends_seconds) ends.push_back(std::round(end * 1e4) / 1e4);
    line["ends"] = ends;
    file.write(line.dump() + "\n");
  }
  file.commit();
}

Timings read_timings(const std::string& path) {
  Timings timings;
  if (fs::is_directory(path)) {
    timings.from_melete = false;
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.path().extension() == ".TextGrid") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) timings.list.push_back(read_textgrid(file));
  } else {
    timings = fs::path(path).extension() == ".ctm" ? read_ctm(path) : read_own(path);
  }
  require(!timings.list.empty(), "[timings] there are none in {}", path);
  for (const SpokenTiming& timing : timings.list) check(timing, timing.path);
  return timings;
}

TimingIndex::TimingIndex(std::vector<SpokenTiming> list) : list_(std::move(list)) {
  for (size_t i = 0; i < list_.size(); ++i) {
    by_path_[path_key(list_[i].path)] = i;
    // TextGrids and CTM files name recordings, not their paths.
    if (fs::path(list_[i].path).extension() == ".TextGrid" || !fs::path(list_[i].path).has_parent_path())
      by_name_[fs::path(list_[i].path).stem().string()] = i;
  }
}

const SpokenTiming* TimingIndex::find(const std::string& recording) const {
  if (const auto found = by_path_.find(path_key(recording)); found != by_path_.end())
    return &list_[found->second];
  const auto found = by_name_.find(fs::path(recording).stem().string());
  return found == by_name_.end() ? nullptr : &list_[found->second];
}

std::vector<int64_t> frames_of(const std::vector<double>& ends_seconds, double frames_per_second,
                               int64_t frames) {
  std::vector<int64_t> counts;
  int64_t before = 0;
  for (size_t i = 0; i < ends_seconds.size(); ++i) {
    const bool last = i + 1 == ends_seconds.size();
    const int64_t end =
        last ? frames
             : std::clamp<int64_t>(std::llround(ends_seconds[i] * frames_per_second), before, frames);
    counts.push_back(end - before);
    before = end;
  }
  return counts;
}

std::vector<double> ends_of_events(const Phonemes& phonemes, const EspeakSpeech& speech, double seconds) {
  const auto& events = speech.phonemes;
  const auto sounds =
      std::count_if(events.begin(), events.end(), [](const auto& e) { return !e.symbol.empty(); });
  const auto wanted =
      std::count_if(phonemes.begin(), phonemes.end(), [](const auto& p) { return !is_pause(p); });
  int64_t surplus = sounds - wanted;  // glides that some accents put between two phonemes
  require(surplus >= 0, "[espeak] speech has {} sounds, its text {} phonemes ({})", sounds, wanted,
          joined(phonemes));
  std::vector<double> starts;
  size_t event = 0;
  const auto to_sound = [&] {
    while (event < events.size() && events[event].symbol.empty()) ++event;
  };
  for (const std::string& phoneme : phonemes) {
    if (phoneme == kSilence) {
      starts.push_back(0);
      continue;
    }
    if (is_pause(phoneme)) {
      // The first of the silent events, or where the next sound begins.
      starts.push_back(event < events.size() ? events[event].start_seconds : seconds);
      continue;
    }
    to_sound();
    while (surplus > 0 && without_marks(events[event].symbol) != without_marks(phoneme)) {
      ++event, --surplus;
      to_sound();
    }
    starts.push_back(events[event++].start_seconds);
  }
  std::vector<double> ends(starts.begin() + 1, starts.end());
  ends.push_back(seconds);
  return ends;
}

}  // namespace melete
