#include "data/base/timings.h"

#include <algorithm>
#include <charconv>
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

// What counts in a Praat text file, whether long or short: numbers that stand alone, texts in quotes,
// <flags>. Everything else says what they are, for people: `xmin = 0`, `intervals [3]:`.
std::vector<std::string> praat_values(const std::string& text) {
  std::vector<std::string> values;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      std::string quoted = "\"";  // tells a text from a number
      for (++i; i < text.size(); ++i) {
        if (text[i] == '"' && (i + 1 == text.size() || text[i + 1] != '"')) break;
        if (text[i] == '"') ++i;
        quoted += text[i];
      }
      ++i;
      values.push_back(std::move(quoted));
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \t\r\n\"", i), text.size());
    const std::string word = text.substr(i, end - i);
    double number = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && rest == word.data() + word.size()) values.push_back(word);
    if (word == "<exists>") values.push_back(word);
    i = end == i ? i + 1 : end;
  }
  return values;
}

// The tier called phones (or phonemes, or "speaker - phones") of a Praat TextGrid; else its last one.
SpokenTiming read_textgrid(const std::string& path) {
  const auto values = praat_values(file_text(path));
  size_t place = 0;
  const auto next = [&]() -> const std::string& {
    require(place < values.size(), "[timings] {} ends in the middle; is it a whole TextGrid?", path);
    return values[place++];
  };
  const auto text = [&] {
    const std::string& value = next();
    require(value.starts_with('"'), "[timings] {}: expected a text in quotes, got {}", path, value);
    return value.substr(1);
  };
  const auto number = [&] {
    const std::string& value = next();
    try {
      return std::stod(value);
    } catch (const std::exception&) {
      fail("[timings] {}: expected a number, got `{}`", path, value);
    }
  };
  const auto count = [&] {
    const double given = number();
    require(given >= 0 && given <= static_cast<double>(values.size()),
            "[timings] {} says that it has {} parts, and ends before that", path, given);
    return static_cast<int64_t>(given);
  };
  while (place < values.size() && values[place] != "<exists>") ++place;
  require(place < values.size(), "[timings] {} has no intervals; is it a TextGrid in Praat's text form?",
          path);
  ++place;
  IntervalList chosen(path);
  bool found = false;
  const int64_t tiers = count();
  for (int64_t tier = 0; tier < tiers; ++tier) {
    const bool intervals = text() == "IntervalTier";
    const std::string name = text();
    number(), number();  // from, to
    const int64_t parts = count();
    const bool wanted = name == "phones" || name == "phonemes" || name.ends_with(" - phones");
    IntervalList list(path);
    for (int64_t i = 0; i < parts; ++i) {
      const double from = number(), to = intervals ? number() : from;
      const std::string label = text();
      if (intervals) list.add(from, to, label);
    }
    if (!intervals || (found && !wanted)) continue;
    found = found || wanted;
    chosen = std::move(list);
  }
  require(!chosen.empty(), "[timings] {} has no intervals; is it a TextGrid of phonemes?", path);
  return chosen.take();
}

// The Montreal aligner's CSV of one recording: its first line names the columns, Begin, End, Label and Type
// among them; rows of the type phones count.
SpokenTiming read_csv(const std::string& path) {
  std::istringstream in(file_text(path));
  IntervalList list(path);
  std::vector<std::string> names;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    while (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    std::vector<std::string> cells = {""};
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.emplace_back();
      else
        cells.back() += c;
    }
    if (names.empty()) {
      names = std::move(cells);
      continue;
    }
    const auto cell = [&](const char* name) -> const std::string& {
      const auto column = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      require(column < names.size() && column < cells.size(),
              "[timings] {}:{}: expected columns Begin, End, Label and Type as the Montreal aligner writes "
              "them, found no {}",
              path, number, name);
      return cells[column];
    };
    const auto seconds = [&](const char* name) {
      try {
        return std::stod(cell(name));
      } catch (const std::exception&) {
        fail("[timings] {}:{}: expected seconds as {}, got `{}`", path, number, name, cell(name));
      }
    };
    if (cell("Type") == "phones") list.add(seconds("Begin"), seconds("End"), cell("Label"));
  }
  require(!list.empty(), "[timings] {} has no rows of the type phones", path);
  return list.take();
}

// festvox labels of one recording: after a line with # alone an end, a colour and a phoneme on each line.
SpokenTiming read_labels(const std::string& path) {
  std::istringstream in(file_text(path));
  IntervalList list(path);
  int64_t number = 0;
  bool begun = false;
  double before = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string first;
    if (!(words >> first)) continue;
    if (!begun) {
      begun = first == "#";
      continue;
    }
    std::istringstream whole(line);
    double end = 0;
    std::string colour, label;
    require(static_cast<bool>(whole >> end >> colour >> label),
            "[timings] {}:{}: expected `end colour phoneme`, got `{}`", path, number, line);
    if (label.size() > 1 && label.back() == ';') label.pop_back();
    list.add(before, end, label);
    before = end;
  }
  require(!list.empty(),
          "[timings] {} has no labels after a line `#`; expected festvox labels (end, colour, phoneme)",
          path);
  return list.take();
}

// Of what another aligner writes for each recording, by its extension; nullptr: nothing of the kind.
SpokenTiming (*reader_of(const fs::path& path))(const std::string&) {
  const std::string extension = path.extension().string();
  if (extension == ".TextGrid") return read_textgrid;
  if (extension == ".csv") return read_csv;
  if (extension == ".lab") return read_labels;
  return nullptr;
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
        timings.phonemizer.lexicon_bytes = json.value("lexicon", "");
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
  read_lexicon(phonemizer);
  if (!phonemizer.lexicon_bytes.empty()) head["lexicon"] = phonemizer.lexicon_bytes;
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
      if (reader_of(entry.path()) != nullptr) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) timings.list.push_back(reader_of(file)(file));
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
    // Files of other aligners name recordings, not their paths.
    if (reader_of(list_[i].path) != nullptr || !fs::path(list_[i].path).has_parent_path())
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
