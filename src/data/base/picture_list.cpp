#include "data/base/picture_list.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "io/base/picture_file.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kLongestCaptionBytes = 1 << 16;  // beyond that it is no caption

// Every run of white space is one blank, none at the ends.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char letter : text) {
    const bool blank = letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r';
    if (!blank) line += letter;
    if (blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string caption_beside(const fs::path& picture) {
  const fs::path path = fs::path(picture).replace_extension(".txt");
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  require(fs::file_size(path) <= kLongestCaptionBytes, "[pictures] {} is too long for a caption",
          path.string());
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "[pictures] cannot read the caption {}", path.string());
  return one_line({std::istreambuf_iterator<char>(stream), {}});
}

std::vector<ManifestEntry> in_folder(const std::string& folder, Captions captions) {
  // "pictures/" and "pictures" are one place.
  fs::path top = fs::path(folder).lexically_normal();
  if (!top.has_filename()) top = top.parent_path();
  std::vector<ManifestEntry> entries;
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto at = fs::recursive_directory_iterator(top, options); at != fs::recursive_directory_iterator();
       ++at) {
    const fs::path& path = at->path();
    if (path.filename().string().starts_with(".")) {  // ".git", macOS's "._cat.jpg"
      if (at->is_directory()) at.disable_recursion_pending();
      continue;
    }
    std::error_code error;
    if (!fs::is_regular_file(path, error) || !is_picture_name(path.string())) continue;
    ManifestEntry entry;
    entry.path = path.string();
    if (captions != Captions::folder) entry.text = caption_beside(path);
    if (captions != Captions::beside && entry.text.empty())
      entry.text = one_line(class_by_folder(path.string(), top.string()));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const ManifestEntry& a, const ManifestEntry& b) { return a.path < b.path; });
  return entries;
}

nlohmann::json object_of(const std::string& line, const std::string& where) {
  // The parser recurses: a line of a million brackets would end the process.
  const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    require(depth <= 4, "[pictures] {}: expected a flat JSON object, got one nested more than 4 deep", where);
    return true;
  };
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line, shallow);
  } catch (const nlohmann::json::exception& error) {
    fail("[pictures] {}: expected a JSON object such as {{\"path\": \"a.jpg\", \"text\": \"a cat\"}} ({})",
         where, error.what());
  }
  require(object.is_object() && object.contains("path") && object["path"].is_string(),
          "[pictures] {}: expected an object with a string \"path\"", where);
  return object;
}

std::vector<ManifestEntry> in_list(const std::string& path, const std::string& caption_column) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "[pictures] cannot open {}", path);
  const fs::path folder = fs::path(path).parent_path();
  std::vector<ManifestEntry> entries;
  std::string line;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    if (one_line(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const nlohmann::json object = object_of(line, where);
    ManifestEntry entry;
    entry.path = (folder / object["path"].get<std::string>()).lexically_normal().string();
    if (const auto text = object.find(caption_column); text != object.end() && !text->is_null()) {
      require(text->is_string(), "[pictures] {}: expected \"{}\" to be a string, got {}", where,
              caption_column, text->type_name());
      entry.text = one_line(text->get<std::string>());
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Rows of a table whose fields stand between commas (tabs in a .tsv), some of them in quotation marks, in
// which a mark is written twice and a field may go on in the next line.
std::vector<std::vector<std::string>> rows_of(const std::string& text, char between,
                                              const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row{""};
  bool quoted = false;
  const auto end_row = [&] {
    if (row.size() > 1 || !one_line(row.front()).empty()) rows.push_back(row);
    row = {""};
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quoted && letter == '"' && i + 1 < text.size() && text[i + 1] == '"')
      row.back() += text[++i];
    else if (letter == '"' && (quoted || row.back().empty()))
      quoted = !quoted;
    else if (quoted || (letter != between && letter != '\n' && letter != '\r'))
      row.back() += letter;
    else if (letter == between)
      row.emplace_back();
    else if (letter == '\n')
      end_row();
  }
  require(!quoted, "[pictures] {}: a quotation mark is never closed", path);
  end_row();
  return rows;
}

std::vector<ManifestEntry> in_table(const std::string& path, const std::string& caption_column) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "[pictures] cannot open {}", path);
  const auto rows =
      rows_of({std::istreambuf_iterator<char>(stream), {}}, path.ends_with(".tsv") ? '\t' : ',', path);
  require(!rows.empty(), "[pictures] {} is empty", path);
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::find(rows[0].begin(), rows[0].end(), name) - rows[0].begin());
  };
  const size_t names = column("path"), captions = column(caption_column);
  require(names < rows[0].size(), "[pictures] {}: expected a first row with a column \"path\", got {}", path,
          fmt::join(rows[0], ", "));
  const fs::path folder = fs::path(path).parent_path();
  std::vector<ManifestEntry> entries;
  for (size_t i = 1; i < rows.size(); ++i) {
    require(rows[i].size() == rows[0].size(), "[pictures] {}: row {} has {} fields, the first one has {}",
            path, i + 1, rows[i].size(), rows[0].size());
    ManifestEntry entry;
    entry.path = (folder / rows[i][names]).lexically_normal().string();
    if (captions < rows[i].size()) entry.text = one_line(rows[i][captions]);
    entries.push_back(std::move(entry));
  }
  return entries;
}

bool is_table(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".tsv");
}

}  // namespace

Captions captions_named(const std::string& name) {
  if (name == "text") return Captions::beside;
  if (name == "folder") return Captions::folder;
  require(name == "auto", "[captions] expected auto, text or folder, got {}", name);
  return Captions::automatic;
}

std::vector<ManifestEntry> load_pictures(const std::string& from, Captions captions,
                                         const std::string& caption_column) {
  require(fs::exists(from),
          "[pictures] expected a folder of pictures or a list of them, but {} does not exist",
          from.empty() ? "nothing" : from);
  require(fs::is_directory(from) || !is_picture_name(from),
          "[pictures] expected a folder or a list, got the picture {}; try the folder it is in", from);
  std::vector<ManifestEntry> entries = fs::is_directory(from) ? in_folder(from, captions)
                                       : is_table(from)       ? in_table(from, caption_column)
                                                              : in_list(from, caption_column);
  require(!entries.empty(), "[pictures] no pictures (jpg, png, webp) in {}", from);
  return entries;
}

}  // namespace melete
