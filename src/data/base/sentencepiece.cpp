#include "data/base/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <queue>

#include "core/base/error.h"

namespace melete {

namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";       // stands for a space inside pieces
constexpr std::string_view kBrokenText = "\xef\xbf\xbd";  // stands for a byte that is no UTF-8
constexpr std::string_view kUnknownText = " \xe2\x81\x87 ";
constexpr float kUnknownPenalty = 10;  // below the least likely piece
constexpr int kUnigram = 1, kBytePairs = 2;

// Protobuf's wire format, only as much as a model file has.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  bool next() {
    if (bytes_.empty()) return false;
    const uint64_t key = varint();
    number_ = key >> 3;
    wire_ = static_cast<int>(key & 7);
    value_ = 0;
    data_ = {};
    switch (wire_) {
      case 0:
        value_ = varint();
        break;
      case 1:
        data_ = take(8);
        break;
      case 2:
        data_ = take(varint());
        break;
      case 5:
        data_ = take(4);
        break;
      default:
        refuse();
    }
    return true;
  }
  uint64_t number() const { return number_; }
  std::string_view data() const {
    if (wire_ != 2) refuse();
    return data_;
  }
  int64_t integer() const {
    if (wire_ != 0) refuse();
    return static_cast<int32_t>(value_);
  }
  float real() const {
    if (wire_ != 5) refuse();
    float value = 0;
    std::memcpy(&value, data_.data(), sizeof value);
    return value;
  }
  [[noreturn]] void refuse() const { fail("[{}] not a SentencePiece model, or a damaged one", where_); }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) refuse();
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) refuse();
    const std::string_view front = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return front;
  }

  std::string_view bytes_;
  const std::string& where_;
  uint64_t number_ = 0, value_ = 0;
  int wire_ = 0;
  std::string_view data_;
};

// Bytes of the character at the front by its first byte alone, at most what is there.
size_t character_bytes(std::string_view text) {
  static constexpr uint8_t kBytes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return std::min<size_t>(kBytes[static_cast<uint8_t>(text.front()) >> 4], text.size());
}

// Whether a whole, valid UTF-8 character is at the front.
bool valid_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return true;
  const size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < count) return false;
  uint32_t value = first & (0x7f >> count);
  for (size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return false;
    value = (value << 6) | (byte(i) & 0x3f);
  }
  if (count == 3) return value >= 0x800 && (value < 0xd800 || value > 0xdfff);
  return count == 2 || (value >= 0x10000 && value <= 0x10ffff);
}

// One cell of the double array.
struct Unit {
  uint32_t bits;
  bool has_leaf() const { return (bits >> 8) & 1; }
  uint32_t value() const { return bits & 0x7fffffffu; }
  uint32_t label() const { return bits & (0x80000000u | 0xffu); }
  uint32_t offset() const { return (bits >> 10) << ((bits & 0x200u) >> 6); }
};

}  // namespace

SentencePieceModel::SentencePieceModel(std::string_view bytes, const std::string& where) : where_(where) {
  read(bytes);
  build();
}

void SentencePieceModel::read(std::string_view bytes) {
  for (Fields fields(bytes, where_); fields.next();) {
    if (fields.number() == 1) read_piece(fields.data());
    if (fields.number() == 2) read_trainer(fields.data());
    if (fields.number() == 3) read_normaliser(fields.data());
  }
  require(!pieces_.empty(), "[{}] not a SentencePiece model: it has no pieces", where_);
}

void SentencePieceModel::read_piece(std::string_view bytes) {
  Piece piece;
  for (Fields fields(bytes, where_); fields.next();) {
    if (fields.number() == 1) piece.text = fields.data();
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) {
      if (fields.integer() < 1 || fields.integer() > 6) fields.refuse();
      piece.type = static_cast<Type>(fields.integer());
    }
  }
  require(!piece.text.empty(), "[{}] not a SentencePiece model: piece {} is empty", where_, pieces_.size());
  pieces_.push_back(std::move(piece));
}

void SentencePieceModel::read_trainer(std::string_view bytes) {
  for (Fields fields(bytes, where_); fields.next();) switch (fields.number()) {
      case 3:
        require(
            fields.integer() == kUnigram || fields.integer() == kBytePairs,
            "[{}] expected a unigram model (as T5's) or one of byte pairs, got another type; train it with "
            "--model_type=unigram or bpe",
            where_);
        joins_pairs_ = fields.integer() == kBytePairs;
        break;
      case 24:
        space_as_suffix_ = fields.integer() != 0;
        break;
      case 35:
        byte_fallback_ = fields.integer() != 0;
        break;
      case 40:
        unknown_id_ = fields.integer();
        break;
      case 42:
        end_id_ = fields.integer();
        break;
      case 43:
        pad_id_ = fields.integer();
        break;
      default:
        break;
    }
}

void SentencePieceModel::read_normaliser(std::string_view bytes) {
  for (Fields fields(bytes, where_); fields.next();) switch (fields.number()) {
      case 2:
        read_character_map(fields.data());
        break;
      case 3:
        add_prefix_ = fields.integer() != 0;
        break;
      case 4:
        remove_extra_spaces_ = fields.integer() != 0;
        break;
      case 5:
        escape_spaces_ = fields.integer() != 0;
        break;
      default:
        break;
    }
}

// The size of the double array in bytes, the array, then the texts.
void SentencePieceModel::read_character_map(std::string_view bytes) {
  if (bytes.empty()) return;
  uint32_t size = 0;
  require(bytes.size() > sizeof size, "[{}] damaged SentencePiece model: its character map is cut off",
          where_);
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  require(size % sizeof(uint32_t) == 0 && size > 0 && size < bytes.size(),
          "[{}] damaged SentencePiece model: its character map is cut off", where_);
  rules_.resize(size / sizeof(uint32_t));
  std::memcpy(rules_.data(), bytes.data(), size);
  replacements_ = bytes.substr(size);
  if (replacements_.back() != '\0') replacements_ += '\0';
}

void SentencePieceModel::build() {
  const auto known = [&](int64_t id) { return id >= -1 && id < size(); };
  require(unknown_id_ >= 0 && known(unknown_id_) && known(end_id_) && known(pad_id_),
          "[{}] damaged SentencePiece model: unknown, end or padding is outside its {} pieces", where_,
          size());
  trie_.emplace_back();
  byte_pieces_.assign(256, -1);
  lowest_ = std::numeric_limits<float>::max();
  highest_ = std::numeric_limits<float>::lowest();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const auto id = static_cast<int32_t>(i);
    if (piece.type == Type::normal) {
      lowest_ = std::min(lowest_, piece.score);
      highest_ = std::max(highest_, piece.score);
    }
    if (piece.type == Type::normal || piece.type == Type::user_defined) add_to_trie(piece.text, id);
    if (piece.type == Type::user_defined) user_defined_.push_back(id);
    unsigned byte = 0;
    if (piece.type == Type::byte && std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) == 1)
      byte_pieces_[byte & 0xff] = id;
  }
}

void SentencePieceModel::add_to_trie(const std::string& text, int32_t piece) {
  int32_t at = 0;
  for (const char byte : text) {
    const auto found = trie_[static_cast<size_t>(at)].next.find(byte);
    if (found != trie_[static_cast<size_t>(at)].next.end()) {
      at = found->second;
      continue;
    }
    const auto made = static_cast<int32_t>(trie_.size());
    trie_.emplace_back();
    trie_[static_cast<size_t>(at)].next.emplace(byte, made);
    at = made;
  }
  trie_[static_cast<size_t>(at)].piece = piece;
}

size_t SentencePieceModel::match_rule(std::string_view text, std::string_view& becomes) const {
  if (rules_.empty()) return 0;
  size_t longest = 0;
  uint32_t value = 0;
  uint64_t at = Unit{rules_[0]}.offset();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= rules_.size() || Unit{rules_[at]}.label() != byte) break;
    const Unit unit{rules_[at]};
    at ^= unit.offset();
    if (at >= rules_.size()) break;
    if (unit.has_leaf()) {
      longest = i + 1;
      value = Unit{rules_[at]}.value();
    }
  }
  if (longest == 0) return 0;
  require(value < replacements_.size(), "[{}] damaged SentencePiece model: a rule points past its texts",
          where_);
  becomes = std::string_view(replacements_.data() + value);
  return longest;
}

size_t SentencePieceModel::match_user_defined(std::string_view text) const {
  size_t longest = 0;
  for (const int32_t id : user_defined_) {
    const std::string& symbol = pieces_[static_cast<size_t>(id)].text;
    if (symbol.size() > longest && text.starts_with(symbol)) longest = symbol.size();
  }
  return longest;
}

std::string SentencePieceModel::normalise(std::string_view text) const {
  // The front of the text as rules make it, and how many bytes that took.
  const auto front = [&](std::string_view rest) -> std::pair<std::string_view, size_t> {
    if (const size_t taken = match_user_defined(rest)) return {rest.substr(0, taken), taken};
    std::string_view becomes;
    if (const size_t taken = match_rule(rest, becomes)) return {becomes, taken};
    if (!valid_character(rest)) return {kBrokenText, 1};
    const size_t taken = character_bytes(rest);
    return {rest.substr(0, taken), taken};
  };
  const std::string_view space = escape_spaces_ ? kSpace : std::string_view(" ");
  if (remove_extra_spaces_)
    while (!text.empty()) {
      const auto [becomes, taken] = front(text);
      if (becomes != " ") break;
      text.remove_prefix(taken);
    }
  if (text.empty()) return {};
  std::string result;
  if (add_prefix_ && !space_as_suffix_) result += space;
  bool after_space = remove_extra_spaces_;
  while (!text.empty()) {
    auto [becomes, taken] = front(text);
    while (after_space && becomes.starts_with(' ')) becomes.remove_prefix(1);
    for (const char byte : becomes)
      if (byte == ' ')
        result += space;
      else
        result += byte;
    if (!becomes.empty()) after_space = remove_extra_spaces_ && becomes.ends_with(' ');
    text.remove_prefix(taken);
  }
  if (remove_extra_spaces_)
    while (result.ends_with(space)) result.erase(result.size() - space.size());
  if (add_prefix_ && space_as_suffix_) result += space;
  return result;
}

std::vector<SentencePieceModel::Found> SentencePieceModel::likeliest_path(std::string_view text) const {
  struct Best {
    float score = 0;
    int32_t piece = 0;
    int64_t begin = -1;  // where the last piece of the best path to here begins; -1: no path yet
  };
  std::vector<Best> best(text.size() + 1);
  const auto offer = [&](size_t begin, size_t end, int32_t piece, double score) {
    Best& here = best[end];
    // Compared in double, kept in float: what the library does decides between paths that are as good.
    const double total = best[begin].score + score;
    if (here.begin < 0 || total > here.score)
      here = {static_cast<float>(total), piece, static_cast<int64_t>(begin)};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = character_bytes(text.substr(begin));
    bool has_character = false;
    size_t node = 0;
    for (size_t end = begin; end < text.size();) {
      const auto next = trie_[node].next.find(text[end++]);
      if (next == trie_[node].next.end()) break;
      node = static_cast<size_t>(next->second);
      const int32_t piece = trie_[node].piece;
      if (piece < 0) continue;
      const Piece& found = pieces_[static_cast<size_t>(piece)];
      const auto length = static_cast<float>(end - begin);
      offer(begin, end, piece, found.type == Type::user_defined ? length * highest_ - 0.1 : found.score);
      has_character = has_character || end - begin == character;
    }
    if (!has_character)
      offer(begin, begin + character, static_cast<int32_t>(unknown_id_), lowest_ - kUnknownPenalty);
    begin += character;
  }

  std::vector<Found> path;
  for (auto end = static_cast<int64_t>(text.size()); end > 0;) {
    const Best& last = best[static_cast<size_t>(end)];
    path.push_back(
        {last.piece, text.substr(static_cast<size_t>(last.begin), static_cast<size_t>(end - last.begin))});
    end = last.begin;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

int32_t SentencePieceModel::piece_of(std::string_view text) const {
  size_t node = 0;
  for (const char byte : text) {
    const auto next = trie_[node].next.find(byte);
    if (next == trie_[node].next.end()) return -1;
    node = static_cast<size_t>(next->second);
  }
  return trie_[node].piece;
}

// Neighbours that make a piece become one, the piece with the highest score first, of several the leftmost.
std::vector<SentencePieceModel::Found> SentencePieceModel::joined_pairs(std::string_view text) const {
  struct Symbol {
    size_t begin, length;
    bool closed;  // what its owner named is never part of more
    size_t before, after;
  };
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<Symbol> symbols;
  for (size_t begin = 0; begin < text.size();) {
    const size_t named = match_user_defined(text.substr(begin));
    const size_t length = named > 0 ? named : character_bytes(text.substr(begin));
    symbols.push_back({begin, length, named > 0, symbols.empty() ? kNone : symbols.size() - 1, kNone});
    if (symbols.size() > 1) symbols[symbols.size() - 2].after = symbols.size() - 1;
    begin += length;
  }
  struct Pair {
    float score;
    size_t left, length;  // the length tells pairs apart that have grown since
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::priority_queue<Pair> pairs;
  const auto offer = [&](size_t left) {
    if (left == kNone || symbols[left].after == kNone) return;
    const Symbol &one = symbols[left], &other = symbols[one.after];
    if (one.closed || other.closed) return;
    const int32_t piece = piece_of(text.substr(one.begin, one.length + other.length));
    if (piece >= 0) pairs.push({pieces_[static_cast<size_t>(piece)].score, left, one.length + other.length});
  };
  for (size_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Symbol& one = symbols[pair.left];
    if (one.length == 0 || one.after == kNone) continue;
    Symbol& other = symbols[one.after];
    if (one.length + other.length != pair.length) continue;
    one.length = pair.length;
    other.length = 0;
    one.after = other.after;
    if (one.after != kNone) symbols[one.after].before = pair.left;
    offer(one.before);
    offer(pair.left);
  }
  std::vector<Found> path;
  for (const Symbol& symbol : symbols) {
    if (symbol.length == 0) continue;
    const std::string_view part = text.substr(symbol.begin, symbol.length);
    const int32_t piece = piece_of(part);
    path.push_back({piece >= 0 ? piece : static_cast<int32_t>(unknown_id_), part});
  }
  return path;
}

std::vector<int64_t> SentencePieceModel::encode(std::string_view raw) const {
  const std::string text = normalise(raw);
  std::vector<int64_t> ids;
  bool after_unknown = false;
  for (const Found& found : joins_pairs_ ? joined_pairs(text) : likeliest_path(text)) {
    const bool unknown = found.piece == unknown_id_;
    if (unknown && byte_fallback_) {
      for (const char byte : found.text) {
        const int32_t piece = byte_pieces_[static_cast<uint8_t>(byte)];
        ids.push_back(piece >= 0 ? piece : unknown_id_);
      }
    } else if (!unknown || !after_unknown) {  // unknown characters in a row are one
      ids.push_back(found.piece);
    }
    after_unknown = unknown;
  }
  return ids;
}

std::string SentencePieceModel::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids) {
    require(id >= 0 && id < size(), "[text] expected ids of 0 .. {}, got {}", size() - 1, id);
    const Piece& piece = pieces_[static_cast<size_t>(id)];
    if (piece.type == Type::control) continue;
    if (piece.type == Type::unknown) {
      text += kUnknownText;
      continue;
    }
    unsigned byte = 0;
    if (piece.type == Type::byte && std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) == 1) {
      text += static_cast<char>(byte);
      continue;
    }
    std::string_view rest = piece.text;
    while (!rest.empty()) {
      const bool space = rest.starts_with(kSpace);
      if (space)
        text += ' ';
      else
        text += rest.front();
      rest.remove_prefix(space ? kSpace.size() : 1);
    }
  }
  if (add_prefix_ && !space_as_suffix_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace melete
