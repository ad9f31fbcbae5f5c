#include "data/base/phonemes.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/base/espeak.h"
#include "data/base/unicode.h"

namespace melete {

namespace {

constexpr char32_t kMarks[] = {U'ˈ', U'ˌ', U'ː', U'ˑ', U'̩', U'̃', U'ʲ', U'ʰ'};

bool is_quote(char32_t c) {
  return c == U'"' || c == U'\'' || c == U'’' || c == U'”' || c == U'»' || c == U')' || c == U']';
}

// The pause that a mark is heard as; nullptr: it is no such mark.
const char* pause_of(char32_t c) {
  switch (c) {
    case U',':
    case U';':
    case U':':
    case U'—':
    case U'–':
    case U'،':
    case U'、':
      return ",";
    case U'.':
    case U'…':
    case U'。':
      return ".";
    case U'?':
    case U'？':
    case U'؟':
      return "?";
    case U'!':
    case U'！':
      return "!";
    default:
      return nullptr;
  }
}

// Whether the mark at `i` ends a clause: "3.5" and "don't" go on.
bool ends_clause(const std::u32string& text, size_t i) {
  if (pause_of(text[i]) == nullptr) return false;
  size_t next = i + 1;
  while (next < text.size() && (is_quote(text[next]) || pause_of(text[next]) != nullptr)) ++next;
  return next == text.size() || is_space(text[next]) || text[i] > 0x7f;
}

std::string lowered(std::string_view word) {
  return utf8(lower(code_points(word)));
}

}  // namespace

void describe(Schema& s, PhonemizerConfig& c) {
  s.option(
       "source", c.source,
       "what turns text into phonemes: espeak-ng, or its letters or the bytes of its letters stand for them")
      .one_of({"espeak", "characters", "bytes"});
  s.option("language", c.language, "espeak-ng's name for it: en-us, de, ...");
  s.option("lexicon", c.lexicon,
           "file of words that are said otherwise: on each line a word, then its "
           "phonemes, with spaces between; kept in checkpoints and timings")
      .kept(kKeptLexicon, c.lexicon_bytes);
}

bool is_pause(const std::string& phoneme) {
  return phoneme == kSilence || phoneme == "," || phoneme == "." || phoneme == "?" || phoneme == "!";
}

std::string without_marks(const std::string& phoneme) {
  std::u32string points = code_points(phoneme);
  std::erase_if(points, [](char32_t c) {
    return std::find(std::begin(kMarks), std::end(kMarks), c) != std::end(kMarks);
  });
  return utf8(points);
}

std::string joined(const Phonemes& phonemes) {
  std::string all;
  for (const std::string& phoneme : phonemes) all += (all.empty() ? "" : " ") + phoneme;
  return all;
}

Phonemes separated(std::string_view spaced) {
  Phonemes all;
  std::string symbol;
  for (const char c : spaced) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      symbol += c;
    } else if (!symbol.empty()) {
      all.push_back(std::exchange(symbol, {}));
    }
  }
  if (!symbol.empty()) all.push_back(symbol);
  return all;
}

void read_lexicon(PhonemizerConfig& config) {
  if (config.lexicon.empty() || !config.lexicon_bytes.empty()) return;
  std::ifstream in(config.lexicon, std::ios::binary);
  require(in.good(), "[lexicon] cannot read {}", config.lexicon);
  config.lexicon_bytes.assign(std::istreambuf_iterator<char>(in), {});
}

Phonemizer::Phonemizer(const PhonemizerConfig& given) : config_(given) {
  PhonemizerConfig& config = config_;
  if (config.lexicon.empty()) return;
  read_lexicon(config);
  std::istringstream in(config.lexicon_bytes);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    Phonemes words = separated(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    require(words.size() >= 2, "[lexicon] {}:{}: expected a word and its phonemes, got `{}`", config.lexicon,
            number, line);
    lexicon_[lowered(words[0])] = {words.begin() + 1, words.end()};
  }
}

// Words without marks of pauses between them.
void Phonemizer::add_plain(std::string_view words, Phonemes& to) const {
  if (separated(words).empty()) return;
  if (config_.source == "espeak") {
    for (std::string& phoneme : espeak_phonemes(words, config_.language))
      if (!phoneme.empty()) to.push_back(std::move(phoneme));
    return;
  }
  for (const std::string& word : separated(words)) {
    if (!to.empty() && !is_pause(to.back())) to.emplace_back(kEndOfWord);
    if (config_.source == "bytes") {  // 61 for an a: no byte is a space or a pause's mark then
      for (const char byte : word) to.push_back(fmt::format("{:02x}", static_cast<unsigned char>(byte)));
      continue;
    }
    for (const char32_t c : lower(code_points(word)))
      if (is_letter(c) || is_number(c) || c == U'\'') to.push_back(utf8(std::u32string(1, c)));
  }
}

void Phonemizer::add_words(std::string_view words, Phonemes& to) const {
  if (lexicon_.empty()) return add_plain(words, to);
  std::string plain;
  for (const std::string& word : separated(words)) {
    const auto found = lexicon_.find(lowered(word));
    if (found == lexicon_.end()) {
      plain += word + " ";
      continue;
    }
    add_plain(std::exchange(plain, {}), to);
    to.insert(to.end(), found->second.begin(), found->second.end());
  }
  add_plain(plain, to);
}

Phonemes Phonemizer::operator()(std::string_view given) const {
  const std::u32string text = code_points(given);
  Phonemes said = {kSilence};
  std::u32string words;
  const auto flush = [&] { add_words(utf8(std::exchange(words, {})), said); };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, U"[[") == 0) {
      const size_t end = text.find(U"]]", i);
      require(end != std::u32string::npos, "[phonemes] `[[` is not closed by `]]` in \"{}\"", given);
      flush();
      const Phonemes inside = separated(utf8(text.substr(i + 2, end - i - 2)));
      said.insert(said.end(), inside.begin(), inside.end());
      i = end + 1;
    } else if (ends_clause(text, i)) {
      flush();
      // The first mark of several decides; a mark before any word says nothing.
      if (!is_pause(said.back())) said.emplace_back(pause_of(text[i]));
    } else {
      words += text[i];
    }
  }
  flush();
  require(said.size() > 1, "[phonemes] nothing to say in \"{}\"", given);
  if (!is_pause(said.back())) said.emplace_back(".");
  return said;
}

std::vector<std::string> sentences(std::string_view given) {
  const std::u32string text = code_points(given);
  std::vector<std::string> all;
  std::u32string sentence;
  const auto flush = [&] {
    const bool words = std::any_of(sentence.begin(), sentence.end(),
                                   [](char32_t c) { return is_letter(c) || is_number(c); });
    if (words) all.push_back(utf8(sentence));
    sentence.clear();
  };
  bool ending = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (ending && is_space(text[i])) {
      flush();
      ending = false;
    }
    if (sentence.empty() && is_space(text[i])) continue;
    if (text[i] == U'\n') {
      flush();
      continue;
    }
    sentence += text[i];
    const char* pause = pause_of(text[i]);
    if (pause != nullptr && *pause != ',' && ends_clause(text, i)) ending = true;
  }
  flush();
  return all;
}

PhonemeTable::PhonemeTable(const std::string& listed) {
  for (const std::string& symbol : separated(listed)) add(symbol);
}

PhonemeTable PhonemeTable::of(const std::vector<Phonemes>& texts) {
  std::set<std::string> all = {kSilence, ",", ".", "?", "!"};
  for (const Phonemes& text : texts) all.insert(text.begin(), text.end());
  PhonemeTable table;
  for (const std::string& symbol : all) table.add(symbol);
  return table;
}

void PhonemeTable::add(const std::string& symbol) {
  if (!numbers_.emplace(symbol, size()).second) return;
  bare_.emplace(without_marks(symbol), size());
  symbols_.push_back(symbol);
}

std::string PhonemeTable::listed() const {
  return joined(symbols_);
}

std::vector<int64_t> PhonemeTable::ids(const Phonemes& phonemes) const {
  std::vector<int64_t> numbers;
  for (const std::string& phoneme : phonemes) {
    auto found = numbers_.find(phoneme);
    if (found == numbers_.end()) {
      found = bare_.find(without_marks(phoneme));
      require(found != bare_.end(), "[phonemes] the model has never met `{}`; it knows: {}", phoneme,
              listed());
    }
    numbers.push_back(found->second);
  }
  return numbers;
}

}  // namespace melete
