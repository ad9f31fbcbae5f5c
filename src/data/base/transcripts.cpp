#include "data/base/transcripts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostTextBytes = 1 << 18;      // of one recording
constexpr uintmax_t kMostTableBytes = 1 << 30;  // of one metadata.csv or *.trans.txt

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead < 0xf0                 ? 3
                          : lead < 0xf5                 ? 4
                                                        : 0;
    if (length == 0 || (lead >= 0x80 && lead < 0xc2) || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    const auto second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
      return false;
    i += length;
  }
  return true;
}

std::string trimmed(const std::string& text) {
  const char* blank = " \t\r\n";
  size_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  begin = text.find_first_not_of(blank, begin);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

std::string key_of(const fs::path& folder, const std::string& id) {
  return (folder / id).lexically_normal().string();
}

}  // namespace

Transcripts::Transcripts(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const std::string name = fs::path(path).filename().string();
    const bool table = name == "metadata.csv" || name.ends_with(".trans.txt");
    try {
      require(!table || fs::file_size(path) <= kMostTableBytes, "more than {} bytes of text",
              kMostTableBytes);
      if (name == "metadata.csv") {
        read_ljspeech(path);
      } else if (table) {
        read_librispeech(path);
      } else if (name.ends_with(".txt")) {
        text_files_.insert(path);
      }
    } catch (const std::exception& error) {
      skipped_.push_back({path, error.what()});
    }
  }
}

// id|text as written|text with numbers and abbreviations spelled out; the recordings are in wavs/ or beside
// the table.
void Transcripts::read_ljspeech(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const fs::path folder = fs::path(path).parent_path();
  std::string line;
  while (std::getline(stream, line)) {
    const size_t first = line.find('|');
    if (first == std::string::npos) continue;
    const size_t second = line.find('|', first + 1);
    std::string text =
        trimmed(line.substr(first + 1, second == std::string::npos ? second : second - first - 1));
    if (second != std::string::npos) {
      const std::string normalised = trimmed(line.substr(second + 1));
      if (!normalised.empty()) text = normalised;
    }
    const std::string id = trimmed(line.substr(0, first));
    if (id.empty() || text.empty() || text.size() > kMostTextBytes || !is_utf8(text)) continue;
    by_folder_and_id_.try_emplace(key_of(folder / "wavs", id), text);
    by_folder_and_id_.try_emplace(key_of(folder, id), text);
  }
}

// 84-121123.trans.txt beside its recordings: one line each, "84-121123-0000 GO DO YOU HEAR".
void Transcripts::read_librispeech(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const fs::path folder = fs::path(path).parent_path();
  std::string line;
  while (std::getline(stream, line)) {
    const std::string whole = trimmed(line);
    const size_t space = whole.find_first_of(" \t");
    if (space == std::string::npos) continue;
    const std::string text = trimmed(whole.substr(space));
    if (text.size() > kMostTextBytes || !is_utf8(text)) continue;
    by_folder_and_id_.try_emplace(key_of(folder, whole.substr(0, space)), text);
  }
}

std::string Transcripts::text_for(const std::string& recording) const {
  const fs::path path(recording);
  const std::string beside = fs::path(path).replace_extension(".txt").string();
  if (text_files_.contains(beside)) {
    std::ifstream stream(beside, std::ios::binary);
    std::string text(kMostTextBytes + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(stream.gcount()));
    require(text.size() <= kMostTextBytes, "[data index] the text {} has more than {} bytes", beside,
            kMostTextBytes);
    require(is_utf8(text), "[data index] the text {} is not UTF-8; try: iconv -f latin1 -t utf8", beside);
    text = trimmed(text);
    if (!text.empty()) return text;
  }
  for (const std::string& id : {path.stem().string(), path.filename().string()}) {
    const auto found = by_folder_and_id_.find(key_of(path.parent_path(), id));
    if (found != by_folder_and_id_.end()) return found->second;
  }
  return {};
}

}  // namespace melete
