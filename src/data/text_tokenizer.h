// Text to ids. Id 0 is padding and 1 ends a text, for all but CLIP's, where 0 is a piece as well (masks tell
// padding) and the last id ends a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/clip_bpe.h"
#include "data/base/sentencepiece.h"

namespace melete {

class Schema;

constexpr int64_t kTextPad = 0, kTextEnd = 1;

class TextTokenizer {
 public:
  virtual ~TextTokenizer() = default;

  virtual std::string kind() const = 0;                                  // "bytes", "sentencepiece", "clip"
  virtual int64_t vocabulary() const = 0;                                // ids are 0 .. vocabulary - 1
  virtual const std::string& identity() const = 0;                       // hash of what decides the ids
  virtual std::vector<int64_t> pieces(std::string_view text) const = 0;  // without padding and end
  virtual std::string text(const std::vector<int64_t>& ids) const = 0;   // padding and end are left out

  virtual int64_t end_id() const { return kTextEnd; }

  // pieces() and the end, at most max_tokens of them with the end kept.
  std::vector<int64_t> encode(std::string_view text, int64_t max_tokens = 256) const;
};

// UTF-8 bytes, two added to each: needs no file and knows every language.
class ByteTokenizer final : public TextTokenizer {
 public:
  ByteTokenizer();
  std::string kind() const override { return "bytes"; }
  int64_t vocabulary() const override { return 258; }
  const std::string& identity() const override { return identity_; }
  std::vector<int64_t> pieces(std::string_view text) const override;
  std::string text(const std::vector<int64_t>& ids) const override;

 private:
  std::string identity_;
};

// A SentencePiece model whose padding and end are ids 0 and 1, as in T5's spiece.model.
class SentencePieceTokenizer final : public TextTokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& model_path);
  // From the bytes of a model file; `where` goes into messages.
  SentencePieceTokenizer(std::string model_bytes, const std::string& where);

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocabulary() const override { return model_.size(); }
  const std::string& identity() const override { return identity_; }
  std::vector<int64_t> pieces(std::string_view text) const override { return model_.encode(text); }
  std::string text(const std::vector<int64_t>& ids) const override;
  const std::string& model_bytes() const { return bytes_; }

 private:
  std::string bytes_;
  SentencePieceModel model_;
  std::string identity_;
};

// The tokenizer of a model that reads text, by its settings.
struct TextTokenizerConfig {
  std::string tokenizer = "bytes";  // sentencepiece, clip
  std::string sentencepiece;        // its model file; needed to start training, not to go on
  std::string merges;               // CLIP's list of merges; the same
  std::string pieces;               // not a setting: that file's bytes, where it was read before
};
void describe(Schema& schema, TextTokenizerConfig& config);
std::shared_ptr<const TextTokenizer> make_text_tokenizer(const TextTokenizerConfig& config);

// Where a run's checkpoints keep the model file's bytes.
constexpr const char* kKeptPieces = "task.text.pieces";
// Those bytes; empty for a tokenizer without a file.
std::string file_bytes(const TextTokenizer& tokenizer);

// CLIP's byte-pair encoding, from its list of merges.
class ClipTokenizer final : public TextTokenizer {
 public:
  explicit ClipTokenizer(const std::string& merges_path);
  // From the bytes of the list; `where` goes into messages.
  ClipTokenizer(std::string merges, const std::string& where);

  std::string kind() const override { return "clip"; }
  int64_t vocabulary() const override { return model_.size(); }
  int64_t end_id() const override { return model_.end_id(); }
  const std::string& identity() const override { return identity_; }
  std::vector<int64_t> pieces(std::string_view text) const override { return model_.encode(text); }
  std::string text(const std::vector<int64_t>& ids) const override { return model_.decode(ids); }
  const std::string& merges() const { return merges_; }

 private:
  std::string merges_;
  ClipBpe model_;
  std::string identity_;
};

}  // namespace melete
