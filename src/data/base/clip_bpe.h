// CLIP's byte-pair encoding from its list of merges ("bpe_simple_vocab_16e6.txt"): text is repaired, put in
// small letters and cut into words, and the bytes of each word are joined by the first merge that fits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace melete {

class ClipBpe {
 public:
  // From the bytes of the list: a line of version, then one merge a line, of which CLIP uses 48894. Nothing
  // of it is trusted; `where` goes into messages.
  ClipBpe(std::string_view merges, const std::string& where);

  // The 256 bytes, the same at the end of a word, what the merges make, and the start and end of a text.
  int64_t size() const { return static_cast<int64_t>(pieces_.size()) + 2; }
  int64_t start_id() const { return size() - 2; }
  int64_t end_id() const { return size() - 1; }

  std::vector<int64_t> encode(std::string_view text) const;
  // Words are set apart by spaces; the marks of start and end, and padding (zeros) after the last word, are
  // left out.
  std::string decode(const std::vector<int64_t>& ids) const;

 private:
  struct Merge {
    int64_t rank, made;  // the piece that they become
  };
  void add_word(std::string_view bytes, std::vector<int64_t>& ids) const;

  std::vector<std::string> pieces_;  // as bytes, without the mark of a word's end
  std::vector<bool> ends_word_;
  std::unordered_map<uint64_t, Merge> merges_;  // by both pieces
  std::vector<int64_t> byte_ids_;               // [256]
};

}  // namespace melete
