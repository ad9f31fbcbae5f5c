// SentencePiece models (unigram, as T5's, or byte pairs) read and used without the library: Debian's build of
// it exports a protobuf of its own that clashes with LibTorch's and ends the program before main().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace melete {

class SentencePieceModel {
 public:
  // From the bytes of a .model file, of which nothing is trusted; `where` goes into messages.
  SentencePieceModel(std::string_view bytes, const std::string& where);

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  int64_t pad_id() const { return pad_id_; }  // -1: there is none
  int64_t end_id() const { return end_id_; }
  int64_t unknown_id() const { return unknown_id_; }
  const std::string& piece(int64_t id) const { return pieces_[static_cast<size_t>(id)].text; }

  std::vector<int64_t> encode(std::string_view text) const;  // the most likely pieces, or pairs joined
  std::string decode(const std::vector<int64_t>& ids) const;
  std::string normalise(std::string_view text) const;  // as the pieces see it: "\u2581" for spaces

 private:
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  struct Node {  // of the trie over pieces
    std::map<char, int32_t> next;
    int32_t piece = -1;
  };

  struct Found {  // a stretch of a text, and its piece
    int32_t piece;
    std::string_view text;
  };

  void read(std::string_view bytes);
  void read_piece(std::string_view bytes);
  void read_trainer(std::string_view bytes);
  void read_normaliser(std::string_view bytes);
  void read_character_map(std::string_view bytes);
  void build();
  void add_to_trie(const std::string& text, int32_t piece);
  // The longest rule at the front of `text`: how many bytes it takes, and what they become. 0: none.
  size_t match_rule(std::string_view text, std::string_view& becomes) const;
  size_t match_user_defined(std::string_view text) const;
  int32_t piece_of(std::string_view text) const;  // that is just this; -1: none
  std::vector<Found> likeliest_path(std::string_view text) const;
  std::vector<Found> joined_pairs(std::string_view text) const;

  std::string where_;
  std::vector<Piece> pieces_;
  std::vector<Node> trie_;
  std::vector<uint32_t> rules_;  // a double-array trie, as Darts stores it
  std::string replacements_;     // texts that its values point into, each ended by a zero
  std::vector<int32_t> user_defined_;
  std::vector<int32_t> byte_pieces_;  // of the 256 bytes, or -1
  float lowest_ = 0, highest_ = 0;    // scores of normal pieces
  int64_t unknown_id_ = 0, end_id_ = 2, pad_id_ = -1;
  bool joins_pairs_ = false, byte_fallback_ = false, add_prefix_ = true, remove_extra_spaces_ = true,
       escape_spaces_ = true, space_as_suffix_ = false;
};

}  // namespace melete
