#include "data/text_tokenizer.h"

#include <fstream>
#include <sstream>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/base/unicode.h"
#include "data/word_tokenizer.h"
#include "io/base/checksum.h"

namespace melete {

namespace {

constexpr int64_t kFirstByte = 2;

std::string hash_of(std::string_view kind, std::string_view content) {
  Checksum sum;
  sum.add(kind);
  sum.add(content);
  return sum.hex();
}

std::string read_whole(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "[read {}] there is no such {}", path, what);
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

}  // namespace

std::vector<int64_t> TextTokenizer::encode(std::string_view text, int64_t max_tokens) const {
  require(max_tokens >= 1, "[text] expected room for at least 1 token, got {}", max_tokens);
  std::vector<int64_t> ids = pieces(text);
  if (static_cast<int64_t>(ids.size()) >= max_tokens) ids.resize(static_cast<size_t>(max_tokens - 1));
  ids.push_back(end_id());
  return ids;
}

ByteTokenizer::ByteTokenizer() : identity_(hash_of("bytes", "+2")) {}

std::vector<int64_t> ByteTokenizer::pieces(std::string_view text) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size() + 1);
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte) + kFirstByte);
  return ids;
}

std::string ByteTokenizer::text(const std::vector<int64_t>& ids) const {
  std::string result;
  for (const int64_t id : ids)
    if (id >= kFirstByte && id < vocabulary()) result += static_cast<char>(id - kFirstByte);
  return utf8(code_points(result));  // a model may write bytes that are no characters
}

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& model_path)
    : SentencePieceTokenizer(read_whole(model_path, "SentencePiece model"), model_path) {}

SentencePieceTokenizer::SentencePieceTokenizer(std::string model_bytes, const std::string& where)
    : bytes_(std::move(model_bytes)), model_(bytes_, where), identity_(hash_of("sentencepiece", bytes_)) {
  require(
      model_.pad_id() == kTextPad && model_.end_id() == kTextEnd,
      "[{}] expected padding and end as ids {} and {}, got {} and {}; train it with --pad_id=0 --eos_id=1 "
      "--unk_id=2 --bos_id=-1",
      where, kTextPad, kTextEnd, model_.pad_id(), model_.end_id());
}

std::string SentencePieceTokenizer::text(const std::vector<int64_t>& ids) const {
  std::vector<int64_t> plain;
  for (const int64_t id : ids)
    if (id > kTextEnd && id < vocabulary()) plain.push_back(id);
  return utf8(code_points(model_.decode(plain)));
}

void describe(Schema& s, TextTokenizerConfig& c) {
  s.option("tokenizer", c.tokenizer, "text to ids; bytes and words (hashed) need no file")
      .one_of({"bytes", "words", "sentencepiece", "clip"});
  s.option("sentencepiece", c.sentencepiece,
           "SentencePiece model file (padding 0, end 1); kept in checkpoints")
      .kept(kKeptPieces, c.pieces);
  s.option("merges", c.merges, "CLIP's list of merges (bpe_simple_vocab_16e6.txt); kept in checkpoints")
      .kept(kKeptPieces, c.pieces);
}

std::shared_ptr<const TextTokenizer> make_text_tokenizer(const TextTokenizerConfig& config) {
  if (config.tokenizer == "bytes") return std::make_shared<ByteTokenizer>();
  if (config.tokenizer == "words") return std::make_shared<WordTokenizer>();
  if (config.tokenizer == "clip") {
    if (!config.pieces.empty()) return std::make_shared<ClipTokenizer>(config.pieces, "text tokenizer");
    require(!config.merges.empty(),
            "[text.merges] no list of merges given; give one, or set text.tokenizer bytes");
    return std::make_shared<ClipTokenizer>(config.merges);
  }
  require(config.tokenizer == "sentencepiece",
          "[text] expected a tokenizer bytes, words, sentencepiece or clip, got `{}`", config.tokenizer);
  if (!config.pieces.empty())
    return std::make_shared<SentencePieceTokenizer>(config.pieces, "text tokenizer");
  require(!config.sentencepiece.empty(),
          "[text.sentencepiece] no model file given; give one, or set text.tokenizer bytes");
  return std::make_shared<SentencePieceTokenizer>(config.sentencepiece);
}

std::string file_bytes(const TextTokenizer& tokenizer) {
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer))
    return pieces->model_bytes();
  if (const auto* clip = dynamic_cast<const ClipTokenizer*>(&tokenizer)) return clip->merges();
  return "";
}

ClipTokenizer::ClipTokenizer(const std::string& merges_path)
    : ClipTokenizer(read_whole(merges_path, "list of merges"), merges_path) {}

ClipTokenizer::ClipTokenizer(std::string merges, const std::string& where)
    : merges_(std::move(merges)), model_(merges_, where), identity_(hash_of("clip", merges_)) {}

}  // namespace melete
