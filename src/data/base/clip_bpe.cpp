#include "data/base/clip_bpe.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "data/base/html_entities.h"
#include "data/base/text_repair.h"
#include "data/base/unicode.h"

namespace melete {

namespace {

constexpr size_t kMerges = 48894;  // that CLIP uses of a longer list
constexpr std::string_view kWordEnd = "</w>";
constexpr std::u32string_view kStart = U"<|startoftext|>", kEnd = U"<|endoftext|>";

// The list writes bytes as characters that can be seen: those of Latin-1 that can stand for themselves, and
// for the others the ones from U+0100 on.
bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// The order of ids.
std::vector<int> bytes_in_order() {
  std::vector<int> order;
  for (const bool itself : {true, false})
    for (int byte = 0; byte < 256; ++byte)
      if (stands_for_itself(byte) == itself) order.push_back(byte);
  return order;
}

std::string shown(int byte, int others_before) {
  std::string text;
  append_utf8(text, stands_for_itself(byte) ? static_cast<char32_t>(byte)
                                            : static_cast<char32_t>(0x100 + others_before));
  return text;
}

uint64_t pair_key(int64_t first, int64_t second) {
  return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(second);
}

std::u32string clean(std::string_view text) {
  const std::u32string plain = unescape_html(unescape_html(repair_text(code_points(text))));
  std::u32string result;
  for (const char32_t c : plain) {
    if (!is_space(c))
      result += c;
    else if (!result.empty() && result.back() != U' ')
      result += U' ';
  }
  if (!result.empty() && result.back() == U' ') result.pop_back();
  return lower(result);
}

// The English endings that are words of their own: 's 't 're 've 'm 'll 'd. Length, 0: none is here.
size_t contraction_at(std::u32string_view rest) {
  for (const std::u32string_view ending : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"})
    if (rest.starts_with(ending)) return ending.size();
  constexpr char32_t kLongS = 0x17F;  // a small s, whatever the case
  return rest.size() > 1 && rest[0] == U'\'' && rest[1] == kLongS ? 2 : 0;
}

// The length of the word at the front, which is no space.
size_t word_at(std::u32string_view rest) {
  for (const std::u32string_view mark : {kStart, kEnd})
    if (rest.starts_with(mark)) return mark.size();
  if (const size_t length = contraction_at(rest); length > 0) return length;
  if (is_number(rest[0])) return 1;
  const bool letters = is_letter(rest[0]);
  size_t end = 1;
  while (end < rest.size() && !is_space(rest[end]) && !is_number(rest[end]) &&
         is_letter(rest[end]) == letters)
    ++end;
  return end;
}

}  // namespace

ClipBpe::ClipBpe(std::string_view merges, const std::string& where) : byte_ids_(256) {
  std::unordered_map<std::string, int64_t> ids;  // by how the list writes them
  const std::vector<int> order = bytes_in_order();
  for (const bool at_end : {false, true}) {
    int others = 0;
    for (const int byte : order) {
      const std::string written = shown(byte, others) + (at_end ? std::string(kWordEnd) : "");
      others += stands_for_itself(byte) ? 0 : 1;
      if (!at_end) byte_ids_[static_cast<size_t>(byte)] = static_cast<int64_t>(pieces_.size());
      ids[written] = static_cast<int64_t>(pieces_.size());
      pieces_.emplace_back(1, static_cast<char>(byte));
      ends_word_.push_back(at_end);
    }
  }
  const size_t header = merges.find('\n');
  require(header != std::string_view::npos, "[{}] expected a list of merges, one a line, got one line",
          where);
  merges.remove_prefix(header + 1);
  for (size_t line = 0; line < kMerges && !merges.empty(); ++line) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view words = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (!words.empty() && words.back() == '\r') words.remove_suffix(1);
    if (words.empty() && merges.empty()) break;
    const size_t space = words.find(' ');
    require(space != std::string_view::npos && words.find(' ', space + 1) == std::string_view::npos,
            "[{}:{}] expected two pieces and a space between", where, line + 2);
    const std::string first(words.substr(0, space)), second(words.substr(space + 1));
    const auto left = ids.find(first), right = ids.find(second);
    require(left != ids.end() && right != ids.end() && !ends_word_[static_cast<size_t>(left->second)],
            "[{}:{}] a merge of pieces that no line before it makes", where, line + 2);
    // What an earlier merge made, too, keeps its first id.
    const auto made = ids.emplace(first + second, static_cast<int64_t>(pieces_.size())).first->second;
    merges_.emplace(pair_key(left->second, right->second), Merge{static_cast<int64_t>(line), made});
    pieces_.push_back(pieces_[static_cast<size_t>(left->second)] +
                      pieces_[static_cast<size_t>(right->second)]);
    ends_word_.push_back(ends_word_[static_cast<size_t>(right->second)]);
  }
}

void ClipBpe::add_word(std::string_view bytes, std::vector<int64_t>& ids) const {
  std::vector<int64_t> word;
  for (const char byte : bytes) word.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  word.back() += 256;  // its last byte ends it
  while (word.size() > 1) {
    Merge best{std::numeric_limits<int64_t>::max(), -1};
    uint64_t pair = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = merges_.find(pair_key(word[i], word[i + 1]));
      if (found == merges_.end() || found->second.rank >= best.rank) continue;
      best = found->second;
      pair = found->first;
    }
    if (best.made < 0) break;
    std::vector<int64_t> joined;
    for (size_t i = 0; i < word.size(); ++i) {
      const bool here = i + 1 < word.size() && pair_key(word[i], word[i + 1]) == pair;
      joined.push_back(here ? best.made : word[i]);
      if (here) ++i;
    }
    word = std::move(joined);
  }
  ids.insert(ids.end(), word.begin(), word.end());
}

std::vector<int64_t> ClipBpe::encode(std::string_view text) const {
  const std::u32string cleaned = clean(text);
  std::u32string_view rest = cleaned;
  std::vector<int64_t> ids;
  while (!rest.empty()) {
    if (is_space(rest[0])) {
      rest.remove_prefix(1);
      continue;
    }
    const std::u32string_view word = rest.substr(0, word_at(rest));
    rest.remove_prefix(word.size());
    if (word == kStart)
      ids.push_back(start_id());
    else if (word == kEnd)
      ids.push_back(end_id());
    else
      add_word(utf8(word), ids);
  }
  return ids;
}

std::string ClipBpe::decode(const std::vector<int64_t>& ids) const {
  size_t count = ids.size();
  while (count > 0 && ids[count - 1] == 0) --count;  // a word never ends with this piece
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= static_cast<int64_t>(pieces_.size())) continue;
    text += pieces_[static_cast<size_t>(ids[i])];
    if (ends_word_[static_cast<size_t>(ids[i])]) text += ' ';
  }
  if (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace melete
