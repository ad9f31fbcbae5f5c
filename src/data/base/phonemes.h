// What is said, as phonemes: text through espeak-ng, or as characters or bytes where a language has no
// better. Marks between clauses stay as symbols of their own, for they are heard as pauses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

class Schema;
struct EspeakSpeech;

using Phonemes = std::vector<std::string>;

struct PhonemizerConfig {
  std::string source = "espeak";   // espeak, characters, bytes
  std::string language = "en-us";  // espeak-ng's name for it
  std::string lexicon;             // file of words that are said otherwise: a word, then its phonemes
  std::string lexicon_bytes;       // what is in it, once it was read: kept, so that the file may go

  bool operator==(const PhonemizerConfig&) const = default;
};
void describe(Schema& schema, PhonemizerConfig& config);
// Reads the lexicon's file, unless what is in it is known already.
void read_lexicon(PhonemizerConfig& config);
constexpr const char* kKeptLexicon = "task.phonemizer.lexicon";  // its bytes in checkpoints

constexpr const char* kSilence = "_";                   // before the first word
constexpr const char* kEndOfWord = "|";                 // between words of characters or bytes
bool is_pause(const std::string& phoneme);              // silence, or one of , . ? !
std::string without_marks(const std::string& phoneme);  // without stress and length: "ˈɑː" -> "ɑ"

class Phonemizer {
 public:
  explicit Phonemizer(const PhonemizerConfig& config);

  // Silence, phonemes and pauses in order, a pause at the end. `[[h ə l ˈoʊ]]` in the text stands for itself.
  // An Error where nothing is left to say.
  Phonemes operator()(std::string_view text) const;

  const PhonemizerConfig& config() const { return config_; }

 private:
  void add_words(std::string_view words, Phonemes& to) const;
  void add_plain(std::string_view words, Phonemes& to) const;

  PhonemizerConfig config_;
  std::map<std::string, Phonemes> lexicon_;  // by the word in small letters
};

// Text cut where a reader would take breath: after . ! ? and at line ends, marks kept.
std::vector<std::string> sentences(std::string_view text);

// The phonemes that a model knows, by number.
class PhonemeTable {
 public:
  PhonemeTable() = default;
  explicit PhonemeTable(const std::string& listed);            // "_ , . ? ð ə ..."
  static PhonemeTable of(const std::vector<Phonemes>& texts);  // all that occur, sorted

  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  bool empty() const { return symbols_.empty(); }
  std::string listed() const;
  // One that is not in the table is taken without its marks; an Error names one that is not there at all.
  std::vector<int64_t> ids(const Phonemes& phonemes) const;

 private:
  void add(const std::string& symbol);

  std::vector<std::string> symbols_;
  std::map<std::string, int64_t> numbers_, bare_;  // bare: by the symbol without marks
};

std::string joined(const Phonemes& phonemes);          // with spaces between
Phonemes separated(std::string_view spaced_phonemes);  // the inverse

}  // namespace melete
