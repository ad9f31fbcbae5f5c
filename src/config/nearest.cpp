#include "config/nearest.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

namespace melete {
namespace {

constexpr size_t longest_compared = 256;  // a hostile word must not cost more than a typing mistake does
constexpr int part_of_a_word = 2;         // what "rate" for "sample_rate" is worth in edits

std::string plain(std::string_view word) {
  std::string out(word.substr(0, longest_compared));
  for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view last_part(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

int closeness(std::string_view word, std::string_view candidate) {
  const int distance = edit_distance(word, candidate);
  const bool part = word.size() >= 3 && plain(candidate).find(plain(word)) != std::string::npos;
  return part ? std::min(distance, part_of_a_word) : distance;
}

template <class Score>
std::string best(const std::vector<std::string>& candidates, const Score& score) {
  std::string nearest;
  auto lowest = std::pair(std::numeric_limits<int>::max(), std::numeric_limits<int>::max());
  for (const std::string& candidate : candidates) {
    const std::pair<int, int> value = score(candidate);
    if (value < lowest) {
      lowest = value;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace

int edit_distance(std::string_view first, std::string_view second) {
  const std::string a = plain(first), b = plain(second);
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  return best(candidates, [&](const std::string& candidate) {
    return std::pair(closeness(word, candidate), edit_distance(word, candidate));
  });
}

std::string nearest_dotted_name(std::string_view name, const std::vector<std::string>& candidates) {
  return best(candidates, [&](const std::string& candidate) {
    const int whole = edit_distance(name, candidate);
    return std::pair(std::min(whole, closeness(last_part(name), last_part(candidate))), whole);
  });
}

}  // namespace melete
